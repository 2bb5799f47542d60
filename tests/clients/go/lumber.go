// The client library that Filebeat's output has (github.com/elastic/go-lumber), from two senders at once, while the server is killed:
// each acknowledged event is there, and only windows without an acknowledgement are sent again. It also reports the time of
// acknowledgements before the kills.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"sync"
	"time"

	lumber "github.com/elastic/go-lumber/client/v2"
)

const (
	senders  = 2
	windows  = 60
	size     = 500
	kills    = 3
	password = "lumber-check"
	// Bound on 99 of 100 acknowledgements, checked with CLIENT_SPEED: debug builds are slower.
	slowest = 200 * time.Millisecond
)

// A server with a pipeline that stores what Beats send.
type server struct {
	data, api, beats string
	log              *os.File
	process          *exec.Cmd
}

func must(err error) {
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

func freeAddress() string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(err)
	defer listener.Close()
	return listener.Addr().String()
}

func newServer(work string) *server {
	data := filepath.Join(work, "lumber")
	must(os.RemoveAll(data))
	must(os.MkdirAll(filepath.Join(data, "pipelines"), 0o755))
	s := &server{data: data, api: freeAddress(), beats: freeAddress()}
	_, port, err := net.SplitHostPort(s.beats)
	must(err)
	definition := fmt.Sprintf(`input { beats { host => "127.0.0.1" port => %s } } output { opensearch { index => "lumber" } }`, port)
	must(os.WriteFile(filepath.Join(data, "pipelines", "lumber.conf"), []byte(definition), 0o644))
	s.log, err = os.Create(filepath.Join(work, "lumber.log"))
	must(err)
	return s
}

func (s *server) start() {
	s.process = exec.Command(os.Getenv("CLIENT_SERVER"), "serve", "--data", filepath.Join(s.data, "data"), "--listen", s.api)
	s.process.Env = append(os.Environ(), "MILLRACE_ADMIN_PASSWORD="+password, "MILLRACE_FLIGHT__LISTEN=off", "MILLRACE_CONSOLE__LISTEN=off",
		"MILLRACE_PIPELINES__LISTEN=127.0.0.1:0", "MILLRACE_PIPELINES__DIR="+filepath.Join(s.data, "pipelines"),
		"MILLRACE_STORAGE__DISK_THRESHOLD_ENABLED=false")
	s.process.Stdout, s.process.Stderr = s.log, s.log
	must(s.process.Start())
	deadline := time.Now().Add(60 * time.Second)
	for {
		connection, err := net.Dial("tcp", s.beats)
		if err == nil {
			connection.Close()
			return
		}
		if time.Now().After(deadline) {
			must(fmt.Errorf("the server does not listen: %w", err))
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func (s *server) kill() {
	must(s.process.Process.Kill())
	s.process.Wait()
}

func (s *server) call(method, path, body string) map[string]any {
	request, err := http.NewRequest(method, "http://"+s.api+path, bytes.NewReader([]byte(body)))
	must(err)
	request.SetBasicAuth("admin", password)
	request.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(request)
	must(err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	must(err)
	if answer.StatusCode != 200 {
		must(fmt.Errorf("%s %s: %s", method, path, text))
	}
	var parsed map[string]any
	must(json.Unmarshal(text, &parsed))
	return parsed
}

func window(first int) []any {
	events := make([]any, size)
	for at := range events {
		events[at] = map[string]any{
			"@timestamp": "2026-01-02T03:04:05.678Z",
			"@metadata":  map[string]any{"beat": "filebeat", "type": "_doc", "version": "8.19.7"},
			"message":    "a line of a log file, as long as such lines are, with a number at its end",
			"n":          first + at,
			"agent":      map[string]any{"type": "filebeat", "name": "host"},
			"log":        map[string]any{"offset": (first + at) * 100, "file": map[string]any{"path": "/var/log/messages"}},
		}
	}
	return events
}

// Sends windows until each is acknowledged; returns the times of acknowledgements, and how many windows were sent again.
func ship(s *server, first int) (times []time.Duration, again int) {
	var client *lumber.SyncClient
	for number := 0; number < windows; {
		var err error
		if client == nil {
			if client, err = lumber.SyncDial(s.beats, lumber.CompressionLevel(3), lumber.Timeout(60*time.Second)); err != nil {
				client = nil
				time.Sleep(20 * time.Millisecond)
				continue
			}
		}
		began := time.Now()
		if _, err = client.Send(window(first + number*size)); err != nil {
			client.Close()
			client = nil
			again++
			continue
		}
		times = append(times, time.Since(began))
		number++
	}
	client.Close()
	return
}

// Lets all senders send a round of windows.
func round(s *server, first int) (times []time.Duration, again int) {
	var group sync.WaitGroup
	var mutex sync.Mutex
	for sender := 0; sender < senders; sender++ {
		group.Add(1)
		go func() {
			defer group.Done()
			own, repeated := ship(s, first+sender*windows*size)
			mutex.Lock()
			defer mutex.Unlock()
			times, again = append(times, own...), again+repeated
		}()
	}
	group.Wait()
	return
}

func main() {
	if os.Getenv("CLIENT_SERVER") == "" {
		os.Exit(77)
	}
	s := newServer(os.Getenv("CLIENT_WORK"))
	s.start()
	defer s.kill()
	times, again := round(s, 0)
	if again > 0 {
		must(fmt.Errorf("%d windows were sent again while nothing failed", again))
	}
	sort.Slice(times, func(a, b int) bool { return times[a] < times[b] })
	late := times[len(times)*99/100]
	fmt.Printf("acknowledgements of %d events: median %v, 99 of 100 within %v\n", size, times[len(times)/2], late)
	ended := make(chan int)
	go func() {
		_, again := round(s, senders*windows*size)
		ended <- again
	}()
	for kill := 0; kill < kills; kill++ {
		time.Sleep(400 * time.Millisecond)
		s.kill()
		s.start()
	}
	again = <-ended
	s.call("POST", "/lumber/_refresh", "")
	query := `{"size": 0, "track_total_hits": true, "aggs": {"n": {"cardinality": {"field": "n"}}}}`
	found := s.call("POST", "/lumber/_search", query)
	total := int(found["hits"].(map[string]any)["total"].(map[string]any)["value"].(float64))
	different := int(found["aggregations"].(map[string]any)["n"].(map[string]any)["value"].(float64))
	expected := 2 * senders * windows * size
	if different != expected {
		must(fmt.Errorf("%d of %d acknowledged events are there", different, expected))
	}
	if total > expected+again*size {
		must(fmt.Errorf("%d documents of %d events, %d windows sent again", total, expected, again))
	}
	fmt.Printf("%d documents of %d events over %d kills, %d windows sent again\n", total, expected, kills, again)
	if late > slowest && os.Getenv("CLIENT_SPEED") != "" {
		must(fmt.Errorf("an acknowledgement takes %v", late))
	}
}

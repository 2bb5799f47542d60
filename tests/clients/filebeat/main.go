// A Filebeat that follows files: its outputs, its queue and its input `filestream`, without its modules for products.
package main

import (
	"os"

	"github.com/elastic/beats/v7/filebeat/beater"
	"github.com/elastic/beats/v7/filebeat/cmd"
	"github.com/elastic/beats/v7/filebeat/input/filestream"
	v2 "github.com/elastic/beats/v7/filebeat/input/v2"
	"github.com/elastic/beats/v7/libbeat/beat"
	"github.com/elastic/beats/v7/libbeat/logp"
)

func main() {
	inputs := func(_ beat.Info, log *logp.Logger, components beater.StateStore) []v2.Plugin {
		return []v2.Plugin{filestream.Plugin(log, components)}
	}
	if err := cmd.Filebeat(inputs, cmd.FilebeatSettings()).Execute(); err != nil {
		os.Exit(1)
	}
}

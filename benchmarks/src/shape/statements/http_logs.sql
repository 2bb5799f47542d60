-- count by status
SELECT status, count(*) AS n FROM docs GROUP BY status ORDER BY n DESC, status;
-- count
SELECT count(*) FROM docs;
-- count, not 200
SELECT count(*) FROM docs WHERE status <> 200;
-- sum, count, average
SELECT sum(size), count(*), avg(size) FROM docs;
-- distinct clients
SELECT count(DISTINCT clientip) FROM docs;
-- distinct requests
SELECT count(DISTINCT request) FROM docs;
-- first and last time
SELECT min("@timestamp"), max("@timestamp") FROM docs;
-- errors by status
SELECT status, count(*) AS n FROM docs WHERE status <> 200 GROUP BY status ORDER BY n DESC, status LIMIT 10;
-- four aggregates by status
SELECT status, sum(size) AS s, count(*) AS n, avg(size) AS a, count(DISTINCT clientip) AS u FROM docs GROUP BY status ORDER BY n DESC, status LIMIT 10;
-- busiest clients
SELECT clientip, count(*) AS n FROM docs GROUP BY clientip ORDER BY n DESC LIMIT 10;
-- busiest clients by status
SELECT clientip, status, count(*) AS n FROM docs GROUP BY clientip, status ORDER BY n DESC, status LIMIT 10;
-- busiest requests
SELECT request, count(*) AS n FROM docs GROUP BY request ORDER BY n DESC LIMIT 10;
-- busiest images that are sent
SELECT request, count(*) AS n FROM docs WHERE "request.raw" LIKE '%/images/%' AND size > 0 GROUP BY request ORDER BY n DESC LIMIT 10;
-- count like
SELECT count(*) FROM docs WHERE "request.raw" LIKE '%.gif%';
-- whole rows like, oldest 10
SELECT * FROM docs WHERE "request.raw" LIKE '%.pdf%' ORDER BY "@timestamp", clientip, "request.raw" LIMIT 10;
-- requests not found, oldest 10
SELECT request FROM docs WHERE status = 404 ORDER BY "@timestamp" LIMIT 10;
-- hours of the day by status
SELECT status, hour("@timestamp") AS h, count(*) AS n FROM docs GROUP BY status, hour("@timestamp") ORDER BY n DESC, status, h LIMIT 10;
-- one day by hour
SELECT hour("@timestamp") AS h, count(*) AS n, sum(size) AS s FROM docs WHERE "@timestamp" >= TIMESTAMP '1998-05-06 00:00:00' AND "@timestamp" < TIMESTAMP '1998-05-07 00:00:00' GROUP BY hour("@timestamp") ORDER BY h;
-- largest averages of busy clients
SELECT clientip, avg(size) AS a, count(*) AS n FROM docs WHERE status = 200 GROUP BY clientip HAVING count(*) > 100 ORDER BY a DESC LIMIT 25;

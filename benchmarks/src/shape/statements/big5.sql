-- processes by region
SELECT "process.name", "cloud.region", count(*) AS n, avg("metrics.size") AS a FROM docs GROUP BY "process.name", "cloud.region" ORDER BY n DESC, "process.name", "cloud.region" LIMIT 10;
-- streams of large sizes
SELECT "aws.cloudwatch.log_stream" AS k, min("metrics.tmin") AS l, max("metrics.size") AS m, count(*) AS n FROM docs WHERE "metrics.size" > 100 GROUP BY "aws.cloudwatch.log_stream" ORDER BY n DESC, k LIMIT 10;

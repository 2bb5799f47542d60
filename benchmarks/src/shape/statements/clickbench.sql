-- 0: count
SELECT count(*) FROM docs;
-- 1: count of advertised
SELECT count(*) FROM docs WHERE "AdvEngineID" <> 0;
-- 2: three aggregates
SELECT sum("AdvEngineID"), count(*), avg("ResolutionWidth") FROM docs;
-- 3: average of a long
SELECT avg("UserID") FROM docs;
-- 4: distinct users
SELECT count(DISTINCT "UserID") FROM docs;
-- 5: distinct phrases
SELECT count(DISTINCT "SearchPhrase") FROM docs;
-- 6: first and last day
SELECT min("EventDate"), max("EventDate") FROM docs;
-- 7: groups of a few
SELECT "AdvEngineID", count(*) AS c FROM docs WHERE "AdvEngineID" <> 0 GROUP BY "AdvEngineID" ORDER BY c DESC, "AdvEngineID";
-- 8: distinct users by region
SELECT "RegionID", count(DISTINCT "UserID") AS u FROM docs GROUP BY "RegionID" ORDER BY u DESC, "RegionID" LIMIT 10;
-- 9: aggregates by region
SELECT "RegionID", sum("AdvEngineID") AS s, count(*) AS c, avg("ResolutionWidth") AS a, count(DISTINCT "UserID") AS u FROM docs GROUP BY "RegionID" ORDER BY c DESC, "RegionID" LIMIT 10;
-- 10: distinct users by model
SELECT "MobilePhoneModel", count(DISTINCT "UserID") AS u FROM docs WHERE "MobilePhoneModel" <> '' GROUP BY "MobilePhoneModel" ORDER BY u DESC, "MobilePhoneModel" LIMIT 10;
-- 11: distinct users by phone and model
SELECT "MobilePhone", "MobilePhoneModel", count(DISTINCT "UserID") AS u FROM docs WHERE "MobilePhoneModel" <> '' GROUP BY "MobilePhone", "MobilePhoneModel" ORDER BY u DESC, "MobilePhone", "MobilePhoneModel" LIMIT 10;
-- 12: phrases
SELECT "SearchPhrase", count(*) AS c FROM docs WHERE "SearchPhrase" <> '' GROUP BY "SearchPhrase" ORDER BY c DESC, "SearchPhrase" LIMIT 10;
-- 13: distinct users by phrase
SELECT "SearchPhrase", count(DISTINCT "UserID") AS u FROM docs WHERE "SearchPhrase" <> '' GROUP BY "SearchPhrase" ORDER BY u DESC, "SearchPhrase" LIMIT 10;
-- 14: phrases by engine
SELECT "SearchEngineID", "SearchPhrase", count(*) AS c FROM docs WHERE "SearchPhrase" <> '' GROUP BY "SearchEngineID", "SearchPhrase" ORDER BY c DESC, "SearchEngineID", "SearchPhrase" LIMIT 10;
-- 15: users
SELECT "UserID", count(*) AS c FROM docs GROUP BY "UserID" ORDER BY c DESC, "UserID" LIMIT 10;
-- 16: users and phrases
SELECT "UserID", "SearchPhrase", count(*) AS c FROM docs GROUP BY "UserID", "SearchPhrase" ORDER BY c DESC, "UserID", "SearchPhrase" LIMIT 10;
-- 17: users and phrases, ordered by key
SELECT "UserID", "SearchPhrase", count(*) AS c FROM docs GROUP BY "UserID", "SearchPhrase" ORDER BY "UserID", "SearchPhrase" LIMIT 10;
-- 18: users, minutes and phrases
SELECT "UserID", extract(minute FROM "EventTime") AS m, "SearchPhrase", count(*) AS c FROM docs GROUP BY "UserID", extract(minute FROM "EventTime"), "SearchPhrase" ORDER BY c DESC, "UserID", m, "SearchPhrase" LIMIT 10;
-- 19: one user
SELECT "UserID" FROM docs WHERE "UserID" = 435090932899640449;
-- 20: count like
SELECT count(*) FROM docs WHERE "URL" LIKE '%google%';
-- 21: phrases of pages like
SELECT "SearchPhrase", min("URL") AS l, count(*) AS c FROM docs WHERE "URL" LIKE '%google%' AND "SearchPhrase" <> '' GROUP BY "SearchPhrase" ORDER BY c DESC, "SearchPhrase" LIMIT 10;
-- 22: phrases of titles like
SELECT "SearchPhrase", min("URL") AS l, min("Title") AS t, count(*) AS c, count(DISTINCT "UserID") AS u FROM docs WHERE "Title" LIKE '%error%' AND "URL" NOT LIKE '%.google.%' AND "SearchPhrase" <> '' GROUP BY "SearchPhrase" ORDER BY c DESC, "SearchPhrase" LIMIT 10;
-- 23: whole rows like, oldest 10
SELECT * FROM docs WHERE "URL" LIKE '%google%' ORDER BY "EventTime", "WatchID" LIMIT 10;
-- 24: phrases, oldest 10
SELECT "SearchPhrase" FROM docs WHERE "SearchPhrase" <> '' ORDER BY "EventTime", "WatchID" LIMIT 10;
-- 25: first phrases
SELECT "SearchPhrase" FROM docs WHERE "SearchPhrase" <> '' ORDER BY "SearchPhrase" LIMIT 10;
-- 26: phrases by time and text
SELECT "SearchPhrase" FROM docs WHERE "SearchPhrase" <> '' ORDER BY "EventTime", "SearchPhrase" LIMIT 10;
-- 27: length of pages by counter
SELECT "CounterID", avg(length("URL")) AS l, count(*) AS c FROM docs WHERE "URL" <> '' GROUP BY "CounterID" HAVING count(*) > 1000 ORDER BY l DESC, "CounterID" LIMIT 25;
-- 28: hosts of referrers
SELECT regexp_replace("Referer", '^https?://(?:www[.])?([^/]+)/.*$', '\1') AS k, avg(length("Referer")) AS l, count(*) AS c, min("Referer") AS m FROM docs WHERE "Referer" <> '' GROUP BY regexp_replace("Referer", '^https?://(?:www[.])?([^/]+)/.*$', '\1') HAVING count(*) > 1000 ORDER BY l DESC, k LIMIT 25;
-- 29: ninety sums
SELECT {sums} FROM docs;
-- 30: engines and addresses
SELECT "SearchEngineID", "ClientIP", count(*) AS c, sum("IsRefresh") AS s, avg("ResolutionWidth") AS a FROM docs WHERE "SearchPhrase" <> '' GROUP BY "SearchEngineID", "ClientIP" ORDER BY c DESC, "SearchEngineID", "ClientIP" LIMIT 10;
-- 31: hits and addresses, searched
SELECT "WatchID", "ClientIP", count(*) AS c, sum("IsRefresh") AS s, avg("ResolutionWidth") AS a FROM docs WHERE "SearchPhrase" <> '' GROUP BY "WatchID", "ClientIP" ORDER BY c DESC, "WatchID", "ClientIP" LIMIT 10;
-- 32: hits and addresses
SELECT "WatchID", "ClientIP", count(*) AS c, sum("IsRefresh") AS s, avg("ResolutionWidth") AS a FROM docs GROUP BY "WatchID", "ClientIP" ORDER BY c DESC, "WatchID", "ClientIP" LIMIT 10;
-- 33: pages
SELECT "URL", count(*) AS c FROM docs GROUP BY "URL" ORDER BY c DESC, "URL" LIMIT 10;
-- 34: pages beside a constant
SELECT 1 AS one, "URL", count(*) AS c FROM docs GROUP BY one, "URL" ORDER BY c DESC, "URL" LIMIT 10;
-- 35: addresses and differences
SELECT "ClientIP", "ClientIP" - 1 AS a, "ClientIP" - 2 AS b, "ClientIP" - 3 AS d, count(*) AS c FROM docs GROUP BY "ClientIP", "ClientIP" - 1, "ClientIP" - 2, "ClientIP" - 3 ORDER BY c DESC, "ClientIP" LIMIT 10;
-- 36: pages of a counter
SELECT "URL", count(*) AS c FROM docs WHERE "CounterID" = 62 AND "EventDate" >= TIMESTAMP '2013-07-01 00:00:00' AND "EventDate" <= TIMESTAMP '2013-07-31 00:00:00' AND "DontCountHits" = 0 AND "IsRefresh" = 0 AND "URL" <> '' GROUP BY "URL" ORDER BY c DESC, "URL" LIMIT 10;
-- 37: titles of a counter
SELECT "Title", count(*) AS c FROM docs WHERE "CounterID" = 62 AND "EventDate" >= TIMESTAMP '2013-07-01 00:00:00' AND "EventDate" <= TIMESTAMP '2013-07-31 00:00:00' AND "DontCountHits" = 0 AND "IsRefresh" = 0 AND "Title" <> '' GROUP BY "Title" ORDER BY c DESC, "Title" LIMIT 10;
-- 38: links of a counter
SELECT "URL", count(*) AS c FROM docs WHERE "CounterID" = 62 AND "EventDate" >= TIMESTAMP '2013-07-01 00:00:00' AND "EventDate" <= TIMESTAMP '2013-07-31 00:00:00' AND "IsRefresh" = 0 AND "IsLink" <> 0 AND "IsDownload" = 0 GROUP BY "URL" ORDER BY c DESC, "URL" LIMIT 10 OFFSET 1000;
-- 39: sources of a counter
SELECT "TraficSourceID", "SearchEngineID", "AdvEngineID", CASE WHEN "SearchEngineID" = 0 AND "AdvEngineID" = 0 THEN "Referer" ELSE '' END AS src, "URL" AS dst, count(*) AS c FROM docs WHERE "CounterID" = 62 AND "EventDate" >= TIMESTAMP '2013-07-01 00:00:00' AND "EventDate" <= TIMESTAMP '2013-07-31 00:00:00' AND "IsRefresh" = 0 GROUP BY "TraficSourceID", "SearchEngineID", "AdvEngineID", src, dst ORDER BY c DESC, "TraficSourceID", "SearchEngineID", "AdvEngineID", src, dst LIMIT 10 OFFSET 1000;
-- 40: hashes by day
SELECT "URLHash", "EventDate", count(*) AS c FROM docs WHERE "CounterID" = 62 AND "EventDate" >= TIMESTAMP '2013-07-01 00:00:00' AND "EventDate" <= TIMESTAMP '2013-07-31 00:00:00' AND "IsRefresh" = 0 AND "TraficSourceID" IN (-1, 6) AND "RefererHash" <> 0 GROUP BY "URLHash", "EventDate" ORDER BY c DESC, "URLHash", "EventDate" LIMIT 10 OFFSET 100;
-- 41: windows
SELECT "WindowClientWidth", "WindowClientHeight", count(*) AS c FROM docs WHERE "CounterID" = 62 AND "EventDate" >= TIMESTAMP '2013-07-01 00:00:00' AND "EventDate" <= TIMESTAMP '2013-07-31 00:00:00' AND "IsRefresh" = 0 AND "DontCountHits" = 0 GROUP BY "WindowClientWidth", "WindowClientHeight" ORDER BY c DESC, "WindowClientWidth", "WindowClientHeight" LIMIT 10 OFFSET 1000;
-- 42: minutes of two days
SELECT date_trunc('minute', "EventTime") AS m, count(*) AS c FROM docs WHERE "CounterID" = 62 AND "EventDate" >= TIMESTAMP '2013-07-14 00:00:00' AND "EventDate" <= TIMESTAMP '2013-07-15 00:00:00' AND "IsRefresh" = 0 AND "DontCountHits" = 0 GROUP BY date_trunc('minute', "EventTime") ORDER BY m LIMIT 10 OFFSET 1000;

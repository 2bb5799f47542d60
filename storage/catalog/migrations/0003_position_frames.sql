-- The frame of the log that moved a position last: a log that ends before it is not the one that belongs
-- to this catalog.
ALTER TABLE source_positions ADD COLUMN frame BIGINT NOT NULL DEFAULT 0;

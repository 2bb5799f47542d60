-- The store that this catalog belongs to, in the one row. Log and object store carry the same id. The generation
-- counts transactions: what it has fallen behind of was not written beside this catalog.
CREATE TABLE store (
    id         TEXT,
    claimed    BOOLEAN NOT NULL,
    generation BIGINT  NOT NULL
);

INSERT INTO store (id, claimed, generation) VALUES (NULL, FALSE, 0);

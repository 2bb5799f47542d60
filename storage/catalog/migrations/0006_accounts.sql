-- Users, roles, role mappings, API keys and login tokens, each as JSON: what is in it is known to who keeps accounts.
CREATE TABLE accounts (
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (kind, name)
);

//! The vocabulary of generated text.

/// Words of log messages, in no order that means anything; ranks of a Zipf distribution.
pub(crate) const WORDS: &[&str] = &[
    "request", "server", "session", "user", "timeout", "connection", "failed", "started", "closed", "opened",
    "queue", "worker", "cache", "retry", "message", "packet", "record", "update", "process", "thread",
    "memory", "buffer", "socket", "client", "remote", "local", "network", "address", "gateway", "router",
    "switch", "bridge", "tunnel", "channel", "stream", "signal", "handler", "listener", "monitor", "sensor",
    "device", "driver", "module", "kernel", "system", "service", "daemon", "agent", "cluster", "replica",
    "shard", "segment", "index", "query", "search", "result", "response", "status", "error", "warning",
    "notice", "debug", "trace", "level", "limit", "quota", "budget", "token", "cookie", "header",
    "payload", "format", "schema", "field", "column", "table", "view", "row", "key", "value",
    "backup", "restore", "archive", "snapshot", "volume", "disk", "partition", "sector", "block", "file",
    "folder", "path", "link", "mount", "unmount", "read", "write", "append", "delete", "create",
    "rename", "copy", "move", "merge", "split", "join", "sort", "filter", "group", "count",
    "sum", "average", "median", "minimum", "maximum", "range", "window", "bucket", "interval", "period",
    "second", "minute", "hour", "day", "week", "month", "year", "morning", "evening", "night",
    "north", "south", "east", "west", "left", "right", "upper", "lower", "inner", "outer",
    "alpha", "beta", "gamma", "delta", "omega", "sigma", "theta", "lambda", "kappa", "zeta",
    "red", "orange", "yellow", "green", "blue", "indigo", "violet", "black", "white", "silver",
    "gold", "copper", "iron", "steel", "carbon", "oxygen", "nitrogen", "helium", "neon", "argon",
    "apple", "pear", "plum", "cherry", "lemon", "melon", "peach", "grape", "olive", "berry",
    "oak", "pine", "cedar", "maple", "birch", "willow", "ash", "elm", "fir", "spruce",
    "river", "lake", "ocean", "island", "coast", "harbour", "valley", "canyon", "desert", "forest",
    "mountain", "meadow", "prairie", "glacier", "volcano", "summit", "ridge", "cliff", "cave", "spring",
    "falcon", "eagle", "sparrow", "heron", "raven", "swan", "otter", "badger", "beaver", "marten",
    "wolf", "fox", "lynx", "bear", "deer", "moose", "bison", "camel", "zebra", "tiger",
    "anchor", "beacon", "candle", "dagger", "engine", "fabric", "garden", "hammer", "jacket",
    "ladder", "magnet", "needle", "orchid", "pencil", "quartz", "ribbon", "saddle", "temple", "umbrella",
    "velvet", "wagon", "yarn", "zipper", "barrel", "basket", "bottle", "carpet", "curtain", "drawer",
    "account", "balance", "credit", "debit", "invoice", "ledger", "market", "order", "price", "receipt",
    "stock", "trade", "vendor", "customer", "delivery", "package", "shipment", "warehouse", "carrier", "freight",
    "login", "logout", "password", "secret", "certificate", "signature", "cipher", "digest", "nonce", "salt",
    "allow", "deny", "permit", "reject", "accept", "refuse", "grant", "revoke", "enable", "disable",
    "active", "passive", "pending", "running", "stopped", "paused", "resumed", "expired", "renewed", "invalid",
    "valid", "missing", "present", "empty", "full", "partial", "complete", "broken", "healthy", "degraded",
    "primary", "secondary", "leader", "follower", "candidate", "voter", "election", "quorum", "lease", "epoch",
    "latency", "throughput", "bandwidth", "capacity", "pressure", "backlog", "overflow", "underrun", "jitter", "drift",
    "collector", "exporter", "parser", "lexer", "compiler", "linker", "loader", "planner", "optimizer", "executor",
    "checksum", "offset", "length", "version", "revision", "commit", "branch", "release", "upgrade", "rollback",
    "upload", "download", "transfer", "resume", "abort", "cancel", "flush", "refresh", "compact",
    "policy", "rule", "alert", "incident", "event", "metric", "gauge", "counter", "histogram", "summary",
    "browser", "mobile", "desktop", "tablet", "printer", "scanner", "camera", "speaker", "keyboard", "display",
];

/// Pages of the generated web site: its sections, as they stand in request paths.
pub(crate) const SECTIONS: &[&str] = &[
    "images", "teams", "news", "english", "french", "competition", "history", "venues", "tickets", "playing",
    "enfetes", "hosts", "splash", "individuals", "comments", "member", "frames", "downloads", "help", "cities",
];

/// Names of pages and pictures on that site.
pub(crate) const PAGES: &[&str] = &[
    "index", "home", "banner", "logo", "nav", "arrow", "header", "footer", "ball", "field", "player", "keeper",
    "group", "final", "quarter", "semi", "round", "match", "score", "result", "photo", "gallery", "poster",
    "flag", "brazil", "france", "italy", "spain", "norway", "japan", "chile", "croatia", "denmark", "mexico",
    "stadium", "paris", "lyon", "nantes", "lens", "bordeaux", "toulouse", "marseille", "montpellier",
    "mascot", "trophy", "referee", "coach", "squad", "goal", "penalty", "champion", "story", "report",
    "preview", "ticket", "train", "hotel", "weather", "guide", "map", "press", "radio", "video", "sound",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_distinct_and_need_no_escapes() {
        for list in [WORDS, SECTIONS, PAGES] {
            let distinct: std::collections::HashSet<_> = list.iter().collect();
            assert_eq!(distinct.len(), list.len());
            assert!(list.iter().all(|word| word.bytes().all(|byte| byte.is_ascii_alphanumeric())));
        }
    }
}

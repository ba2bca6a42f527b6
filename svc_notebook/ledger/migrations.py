"""The tables of the ledger, and how each version's file becomes the next one's.

Rules: a migration that was once released never changes, the next one is appended;
every migration is tested on a file of the version before it; the number of
migrations is the file's version.
"""

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        # record holds the whole exchange; the columns before it are for WHERE
        """
        CREATE TABLE exchanges (
            seq INTEGER PRIMARY KEY,
            exchange_id TEXT NOT NULL UNIQUE,
            session_id TEXT NOT NULL,
            door TEXT NOT NULL,
            conversation TEXT,
            run TEXT,
            cell_id TEXT,
            repeat INTEGER,
            model TEXT NOT NULL,
            endpoint TEXT NOT NULL,
            status TEXT NOT NULL,
            is_emulated INTEGER NOT NULL,
            is_reused INTEGER NOT NULL,
            started_at TEXT NOT NULL,
            record TEXT NOT NULL,
            record_crc32 INTEGER NOT NULL
        )
        """,
        "CREATE INDEX exchanges_time ON exchanges (started_at)",
        "CREATE INDEX exchanges_session ON exchanges (session_id, started_at)",
        "CREATE INDEX exchanges_run ON exchanges (run) WHERE run IS NOT NULL",
        "CREATE INDEX exchanges_cell ON exchanges (cell_id) WHERE cell_id IS NOT NULL",
        """
        CREATE INDEX exchanges_conversation ON exchanges (conversation)
            WHERE conversation IS NOT NULL
        """,
        # value has no type: a score is a number or a label
        """
        CREATE TABLE scores (
            exchange_id TEXT NOT NULL REFERENCES exchanges (exchange_id),
            choice_index INTEGER NOT NULL,
            name TEXT NOT NULL,
            value,
            scored_at TEXT NOT NULL,
            PRIMARY KEY (exchange_id, choice_index, name)
        )
        """,
    ),
    (
        # One index less an append: the order of reading also tells an exchange that
        # is told twice. usage_source finds the rows that estimates are fitted on.
        """
        CREATE TABLE new_exchanges (
            seq INTEGER PRIMARY KEY,
            exchange_id TEXT NOT NULL,
            session_id TEXT NOT NULL,
            door TEXT NOT NULL,
            conversation TEXT,
            run TEXT,
            cell_id TEXT,
            repeat INTEGER,
            model TEXT NOT NULL,
            endpoint TEXT NOT NULL,
            status TEXT NOT NULL,
            is_emulated INTEGER NOT NULL,
            is_reused INTEGER NOT NULL,
            usage_source TEXT NOT NULL,
            started_at TEXT NOT NULL,
            record TEXT NOT NULL,
            record_crc32 INTEGER NOT NULL
        )
        """,
        """
        INSERT INTO new_exchanges
        SELECT seq, exchange_id, session_id, door, conversation, run, cell_id, repeat,
            model, endpoint, status, is_emulated, is_reused,
            CASE
                WHEN NOT json_valid(record) THEN 'missing'
                WHEN json_type(record, '$.body') = 'null' THEN 'missing'
                WHEN json_type(record, '$.body.usage') = 'object' THEN 'reported'
                ELSE 'estimated'
            END,
            started_at, record, record_crc32
        FROM exchanges
        """,
        """
        CREATE TABLE new_scores (
            exchange_id TEXT NOT NULL,
            choice_index INTEGER NOT NULL,
            name TEXT NOT NULL,
            value,
            scored_at TEXT NOT NULL,
            PRIMARY KEY (exchange_id, choice_index, name)
        )
        """,
        "INSERT INTO new_scores SELECT * FROM scores",
        "DROP TABLE scores",
        "ALTER TABLE new_scores RENAME TO scores",
        "DROP TABLE exchanges",
        "ALTER TABLE new_exchanges RENAME TO exchanges",
        "CREATE UNIQUE INDEX exchanges_time ON exchanges (started_at, exchange_id)",
        "CREATE INDEX exchanges_run ON exchanges (run) WHERE run IS NOT NULL",
        """
        CREATE INDEX exchanges_conversation ON exchanges (conversation)
            WHERE conversation IS NOT NULL
        """,
        # since when a session asks: cheaper to keep than an index of its exchanges
        """
        CREATE TABLE sessions (
            session_id TEXT PRIMARY KEY,
            first_started_at TEXT NOT NULL
        ) WITHOUT ROWID
        """,
        """
        INSERT INTO sessions
        SELECT session_id, min(started_at) FROM exchanges GROUP BY session_id
        """,
        # which requests were asked, filled in when re-use first wants to know
        """
        CREATE TABLE requests (
            seq INTEGER PRIMARY KEY,
            request_hash TEXT NOT NULL
        )
        """,
        "CREATE INDEX requests_hash ON requests (request_hash)",
    ),
    (
        # One row a tool call, answered or refused. It repeats what calls are looked
        # for by, since the exchange whose reply held it may be kept elsewhere.
        """
        CREATE TABLE tool_runs (
            seq INTEGER PRIMARY KEY,
            exchange_id TEXT NOT NULL,
            session_id TEXT NOT NULL,
            door TEXT NOT NULL,
            conversation TEXT,
            run TEXT,
            model TEXT NOT NULL,
            started_at TEXT NOT NULL,
            call_id TEXT NOT NULL,
            name TEXT NOT NULL,
            arguments TEXT NOT NULL,
            sent_arguments TEXT,
            result TEXT NOT NULL,
            error TEXT,
            is_approved INTEGER,
            n_cut_tokens INTEGER NOT NULL,
            seconds_s REAL NOT NULL,
            created_at TEXT NOT NULL
        )
        """,
        "CREATE INDEX tool_runs_time ON tool_runs (started_at)",
        # since when there is a run: an index of its exchanges costs each append
        # an eighth, and a run is read far less often than it is written
        """
        CREATE TABLE runs (
            run TEXT PRIMARY KEY,
            first_started_at TEXT NOT NULL
        ) WITHOUT ROWID
        """,
        """
        INSERT INTO runs SELECT run, min(started_at) FROM exchanges
        WHERE run IS NOT NULL GROUP BY run
        """,
        "DROP INDEX exchanges_run",
    ),
)

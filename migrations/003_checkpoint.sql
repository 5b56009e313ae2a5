-- Where `checkpoint.store = "postgres"` keeps positions: one row per connector.
--
-- It may be in any database that the worker reaches (`checkpoint.url`), and in any schema (`checkpoint.table`).
CREATE TABLE IF NOT EXISTS public.crabka_checkpoint (
    connector text PRIMARY KEY,
    "offset" jsonb NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT now()
);

COMMENT ON TABLE public.crabka_checkpoint IS 'positions of crabka connectors; a row removed is a position lost';

-- For the role of the worker:
--
--     GRANT USAGE ON SCHEMA public TO crabka;
--     GRANT SELECT, INSERT, UPDATE ON public.crabka_checkpoint TO crabka;

-- A role that may do what streaming and watching need and nothing else.
--
-- Needs a superuser, or CREATEROLE and REPLICATION (16 and later). Give it a password, or let pg_hba.conf identify it:
--
--     ALTER ROLE crabka PASSWORD '...';
--
-- REPLICATION lets it open a replication connection and use slots. It reads no table by that: what it receives is
-- decided by the publication (002), which belongs to the owner of the tables.
DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = 'crabka') THEN
        CREATE ROLE crabka LOGIN REPLICATION;
    END IF;
END
$$;

-- Times of other roles' transactions, no data: with them `crabka status` and /status can name the old transaction that
-- keeps the slot from releasing WAL. Optional; from 16 on who lacks ADMIN OPTION on that role cannot grant it.
DO $$
BEGIN
    GRANT pg_read_all_stats TO crabka;
EXCEPTION WHEN insufficient_privilege THEN
    RAISE NOTICE 'pg_read_all_stats is not granted to crabka: a superuser may';
END
$$;

-- A login that applications' settings do not reach. The worker sets what it depends on for each session as well.
ALTER ROLE crabka SET statement_timeout = 0;
ALTER ROLE crabka SET idle_session_timeout = 0;

-- Streaming needs no right on a table. For each one whose rows the role is to read as well, to compare them:
--
--     GRANT USAGE ON SCHEMA public TO crabka;
--     GRANT SELECT ON public.orders TO crabka;

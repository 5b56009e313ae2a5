-- The role of migrations/001_role.sql gets a password, an example as all of them here, and may read what it streams.
ALTER ROLE crabka PASSWORD 'crabka';
GRANT USAGE ON SCHEMA public TO crabka;
GRANT SELECT ON public.orders TO crabka;

-- The publication of the connector `orders`, as `crabka init` makes it for `tables = ["public.orders"]`.
--
-- An example: put your own tables here. Run it as the owner of the tables, with CREATE on the database. It must be
-- there before the replication slot: a slot that is older than its publication fails when it reads the time between.
CREATE PUBLICATION orders FOR TABLE public.orders WITH (publish = 'insert, update, delete, truncate');

-- The slot, made by the role that will use it, or by the worker at its first start:
--
--     SELECT pg_create_logical_replication_slot('orders', 'pgoutput');

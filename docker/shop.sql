-- The application's table in docker-compose.yml.
CREATE TABLE public.orders (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    item       text NOT NULL,
    amount     numeric(12, 2) NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now()
);

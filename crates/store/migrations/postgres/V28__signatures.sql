-- Whose acts must be signed: `people`, `all`. NULL: nobody's, or those who decide on gates where `regulated` says so.
ALTER TABLE configurations ADD COLUMN signatures TEXT;

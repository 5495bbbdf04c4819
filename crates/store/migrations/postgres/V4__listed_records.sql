-- Nothing changes here. On SQLite the indexes of records by action and by actor became lists that are written behind the
-- commits: there every page that a command touches is written whole. PostgreSQL writes only what changed in a page.
SELECT 1;

-- Nothing changes here. On SQLite the index of records by instance became a list that is written behind the commits.
SELECT 1;

-- Nothing changes here. On SQLite the indexes of pending steps and of active assignments became lists.
SELECT 1;

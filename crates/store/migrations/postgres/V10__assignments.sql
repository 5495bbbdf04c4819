-- That a task has one active assignment is the kernel's rule, and whoever verifies the stores checks it: an index for
-- nothing else was a page of every decision.
DROP INDEX assignments_one_active;

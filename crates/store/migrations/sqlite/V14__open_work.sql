-- Pending steps and active assignments. Two indexes did this, and every decision wrote a page of each to take one entry out of
-- it. These lists may name more than is open: whoever reads them looks at the row itself, and what has ended is taken out many
-- at a time (sqlite/listing.rs).

CREATE TABLE steps_opened (
    step_id BLOB NOT NULL PRIMARY KEY
) STRICT, WITHOUT ROWID;
INSERT INTO steps_opened SELECT step_id FROM approval_steps WHERE state = 'Pending' ORDER BY step_id;
CREATE TRIGGER step_opened AFTER INSERT ON approval_steps WHEN NEW.state = 'Pending' BEGIN
    INSERT INTO steps_opened VALUES (NEW.step_id);
END;

CREATE TABLE assignments_opened (
    assignee_ref  TEXT NOT NULL,
    assignment_id BLOB NOT NULL,
    PRIMARY KEY (assignee_ref, assignment_id)
) STRICT, WITHOUT ROWID;
INSERT INTO assignments_opened SELECT assignee_ref, assignment_id FROM assignments WHERE status = 'Active'
    ORDER BY assignee_ref, assignment_id;
CREATE TRIGGER assignment_opened AFTER INSERT ON assignments WHEN NEW.status = 'Active' BEGIN
    INSERT INTO assignments_opened VALUES (NEW.assignee_ref, NEW.assignment_id);
END;

DROP INDEX steps_pending;
DROP INDEX assignments_inbox;

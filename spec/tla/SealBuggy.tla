------------------------------ MODULE SealBuggy ------------------------------
(***************************************************************************
A twin that TLC must reject: numbering before the commit.

It looks so simple.  The log index comes from a counter (a database sequence,
an identity column) when the record is written, and the sealer publishes
whatever is committed above the highest index that it has published.  But the
counter does not wait for the commit: a neighbour with a later number may
commit first, or the transaction may abort, and the log has a hole.

Writers are those of Seal; the sealer does everything in one step, has no
rival and never crashes.  That does not save it.  Expected: Contiguous fails.
***************************************************************************)
EXTENDS Seal

VARIABLES
    counter,    \* the index that is given next
    first       \* of each transaction: the index of its first record

IndexOf(e) == first[e[1]] + e[2] - 1

NumberAndWrite(t) ==
    /\ Write(t)
    /\ first' = [first EXCEPT ![t] = counter]
    /\ counter' = counter + Len(work[t])

AsBefore(t) ==
    /\ Decide(t) \/ Lock(t) \/ Number(t) \/ Commit(t) \/ Abort(t)
    /\ UNCHANGED <<counter, first>>

Publish ==
    LET fresh == {e \in Committed : \A row \in log : row.index < IndexOf(e)}
    IN  /\ fresh # {}
        /\ log' = log \union {[index |-> IndexOf(e), event |-> e] : e \in fresh}
        /\ UNCHANGED <<writers, tree, batch, signed, counter, first>>

BuggyInit == Init /\ counter = 0 /\ first = [t \in Transactions |-> 0]
BuggyNext == Publish \/ \E t \in Transactions : NumberAndWrite(t) \/ AsBefore(t)
BuggySpec == BuggyInit /\ [][BuggyNext]_<<vars, counter, first>>

=============================================================================

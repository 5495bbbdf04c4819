-------------------------------- MODULE Seal --------------------------------
(***************************************************************************
The seal protocol: how committed records get their place in the one global
log, and why a signed checkpoint of that log never has to be taken back.

WHAT IS CLAIMED

  1. Contiguous       The indexes of the log are 0, 1, 2, ... without a gap,
                      and none is given twice.  Nothing that is in the log is
                      ever changed or removed (RowsAreForever).
  2. OnlyCommitted    Only records of committed transactions are in the log,
                      each at most once.
  3. CheckpointsHold  A signed checkpoint of size n is for ever the first n
                      entries of the log.  So of two checkpoints one is always
                      a prefix of the other: there is no fork, whoever signed.
  4. InstanceOrder    The records of an instance stand in the log in the order
                      of their sequence, from the first on and without a gap.
  5. RegistryOrder    A record that was decided under registry sequence r
                      stands after registry record r and before r + 1.
  6. NothingSkipped   A committed record below the highest sealed one (by xid,
                      then by order within the transaction) is in the log.  No
                      hole is ever left behind.
  7. AllGetSealed     If running transactions end, and one sealer runs again
                      whenever it has stopped, then every committed record is
                      sealed at last, though sealers crash without end.

WHAT IS MODELLED

Writers.  A transaction is decided on what is committed at that time, then
takes the registry lock (shared; alone if it changes the registry), then gets
its xid, then passes the fence and writes, then commits.  It may abort, or its
node may die, at any moment.  Between those steps anything else may happen, so
transactions commit in another order than that of their xids.

Sealers.  A sealer reads the log, reads committed records with xid < xmin that
are not in the log (all, or as many as it likes from the front), and appends
them in one transaction at the size that it remembers.  The keys of the table
refuse the append as a whole if an index or an event is there already.  It
signs what it knows to be committed, and may lose its memory at any moment.

The lease that makes one sealer the leader is left out on purpose: here every
sealer believes that it leads, all the time.  What holds here holds however
badly the lease works.  The lease saves work; it protects nothing.

Roots are modelled as the sequence of entries itself: two trees of one root
have the same leaves, which is what the hash function is trusted for.

See README.md for how this maps to the code and for what is assumed.
***************************************************************************)
EXTENDS Naturals, Sequences, FiniteSets, TLC

CONSTANTS
    Transactions,   \* as many as may ever begin
    Instances,      \* process instances
    Registry,       \* the registry, an instance too
    Sealers,        \* nodes that believe that they lead
    Survivor,       \* the sealer that claim 7 relies on
    Unknown,        \* what a sealer knows of the log after a crash
    MaxRecords,     \* of one transaction
    MaxCheckpoints  \* how many signatures are kept in view, see Sign

VARIABLES
    phase,      \* of each transaction: see Phases
    work,       \* of each transaction: the instances it writes to, a record each, in order
    seen,       \* of each transaction: the sequences of all instances when it was decided
    xid,        \* of each transaction: its id, 0 before it has one
    next_xid,   \* the id that is given next
    log,        \* the table log_entries: a set of rows [index, event]
    tree,       \* of each sealer: the log as it remembers it, or Unknown
    batch,      \* of each sealer: the events that it is about to append
    signed      \* the checkpoints that left a node, each a sequence of events

writers == <<phase, work, seen, xid, next_xid>>
sealers == <<log, tree, batch, signed>>
vars == <<phase, work, seen, xid, next_xid, log, tree, batch, signed>>

-----------------------------------------------------------------------------
\* Records.  The k-th record of transaction t is the event <<t, k>>.

AllInstances == Instances \union {Registry}

\* A batch writes one or more records; a registry change is alone in its transaction.
Works == {<<Registry>>} \union UNION {[1..n -> Instances] : n \in 1..MaxRecords}

Phases == {"idle", "decided", "locked", "numbered", "written", "committed", "aborted"}

EventsOf(t) == {<<t, k>> : k \in 1..Len(work[t])}
Committed == UNION {EventsOf(t) : t \in {u \in Transactions : phase[u] = "committed"}}

XidOf(e) == xid[e[1]]
InstanceOf(e) == work[e[1]][e[2]]
RegistryOf(e) == seen[e[1]][Registry]    \* the registry sequence it was decided under
SequenceOf(e) == seen[e[1]][InstanceOf(e)] + Cardinality({k \in 1..e[2] : work[e[1]][k] = InstanceOf(e)})

\* The version of an instance, as anybody reads it who sees what is committed.
Version(i) == Cardinality({e \in Committed : InstanceOf(e) = i})

-----------------------------------------------------------------------------
\* Writers

HoldsLock(t) == phase[t] \in {"locked", "numbered", "written"}
IsRunning(t) == phase[t] \in {"numbered", "written"}    \* as a snapshot sees it: has an xid, has not ended
ChangesRegistry(t) == work[t] = <<Registry>>

\* The versions that matter to the fence, and later to the record.
DecidedOn(w) == {Registry} \union {w[k] : k \in 1..Len(w)}

\* The kernel decides on what is committed now.  Whatever comes in between until the fence makes it stale.
Decide(t) ==
    /\ phase[t] = "idle"
    /\ \E w \in Works :
        /\ work' = [work EXCEPT ![t] = w]
        /\ seen' = [seen EXCEPT ![t] = [i \in AllInstances |-> IF i \in DecidedOn(w) THEN Version(i) ELSE 0]]
    /\ phase' = [phase EXCEPT ![t] = "decided"]
    /\ UNCHANGED <<xid, next_xid, sealers>>

Lock(t) ==
    /\ phase[t] = "decided"
    /\ \A u \in Transactions \ {t} : HoldsLock(u) => ~ChangesRegistry(t) /\ ~ChangesRegistry(u)
    /\ phase' = [phase EXCEPT ![t] = "locked"]
    /\ UNCHANGED <<work, seen, xid, next_xid, sealers>>

\* The first row that it locks or writes gives the transaction its xid.  It may still have to wait for others.
Number(t) ==
    /\ phase[t] = "locked"
    /\ xid' = [xid EXCEPT ![t] = next_xid]
    /\ next_xid' = next_xid + 1
    /\ phase' = [phase EXCEPT ![t] = "numbered"]
    /\ UNCHANGED <<work, seen, sealers>>

\* The fence: the registry and every instance written are where they were when it was decided, and nobody else is
\* writing to them.  (The store leaves a stale unit out and commits the others: that is a smaller work, which is
\* in Works too.  Here a stale transaction can only abort.)
Write(t) ==
    /\ phase[t] = "numbered"
    /\ seen[t][Registry] = Version(Registry)
    /\ \A k \in 1..Len(work[t]) :
        /\ seen[t][work[t][k]] = Version(work[t][k])
        /\ \A u \in Transactions \ {t} : phase[u] = "written" => \A j \in 1..Len(work[u]) : work[u][j] # work[t][k]
    /\ phase' = [phase EXCEPT ![t] = "written"]
    /\ UNCHANGED <<work, seen, xid, next_xid, sealers>>

Commit(t) ==
    /\ phase[t] = "written"
    /\ phase' = [phase EXCEPT ![t] = "committed"]
    /\ UNCHANGED <<work, seen, xid, next_xid, sealers>>

\* A refusal by the fence, a failure, a node that died: nothing is left but the xid that was used up.
Abort(t) ==
    /\ HoldsLock(t)
    /\ phase' = [phase EXCEPT ![t] = "aborted"]
    /\ work' = [work EXCEPT ![t] = <<>>]
    /\ seen' = [seen EXCEPT ![t] = [i \in AllInstances |-> 0]]
    /\ xid' = [xid EXCEPT ![t] = 0]
    /\ UNCHANGED <<next_xid, sealers>>

-----------------------------------------------------------------------------
\* Sealers

Xmin ==
    LET open == {xid[t] : t \in {u \in Transactions : IsRunning(u)}} \union {next_xid}
    IN CHOOSE x \in open : \A y \in open : x <= y

Before(d, e) == XidOf(d) < XidOf(e) \/ (XidOf(d) = XidOf(e) /\ d[2] < e[2])

InOrder(events) ==
    [n \in 1..Cardinality(events) |->
        CHOOSE e \in events : Cardinality({d \in events : Before(d, e)}) = n - 1]

Sealed == {row.event : row \in log}

\* What may be sealed now: below xmin every transaction has ended, so nothing can come in between any more.
Sealable == {e \in Committed \ Sealed : XidOf(e) < Xmin}

Entries == [n \in 1..Cardinality(log) |-> (CHOOSE row \in log : row.index = n - 1).event]

\* At the start, after a crash, or just to be sure.  A batch in memory may be older than this.
Load(s) ==
    /\ tree[s] # Entries
    /\ tree' = [tree EXCEPT ![s] = Entries]
    /\ UNCHANGED <<writers, log, batch, signed>>

\* From the front, as many as it likes (a LIMIT): it may even stop in the middle of a transaction.
Read(s) ==
    /\ tree[s] # Unknown
    /\ Sealable # {}
    /\ \E n \in 1..Cardinality(Sealable) : batch' = [batch EXCEPT ![s] = SubSeq(InOrder(Sealable), 1, n)]
    /\ UNCHANGED <<writers, log, tree, signed>>

RowsOf(s) == {[index |-> Len(tree[s]) + n - 1, event |-> batch[s][n]] : n \in 1..Len(batch[s])}

IndexIsFree(row) == \A old \in log : old.index # row.index     \* PRIMARY KEY (log_index)
EventIsFree(row) == \A old \in log : old.event # row.event     \* UNIQUE (event_id)

\* One transaction, so all rows or none.  An append that was begun and did not commit is Crash without Extend; one
\* that committed without an answer is Extend, then Crash.
Extend(s) ==
    /\ tree[s] # Unknown
    /\ batch[s] # <<>>
    /\ IF \A row \in RowsOf(s) : IndexIsFree(row) /\ EventIsFree(row)
       THEN /\ log' = log \union RowsOf(s)
            /\ tree' = [tree EXCEPT ![s] = @ \o batch[s]]
       ELSE /\ log' = log
            /\ tree' = [tree EXCEPT ![s] = Unknown]
    /\ batch' = [batch EXCEPT ![s] = <<>>]
    /\ UNCHANGED <<writers, signed>>

\* A sealer signs its own tree, however old.  Nothing depends on what was signed, so whatever goes wrong with many
\* signatures goes wrong with the one (or the pair) at fault: few in view lose nothing.
Sign(s) ==
    /\ tree[s] \notin {Unknown, <<>>}
    /\ Cardinality(signed) < MaxCheckpoints
    /\ signed' = signed \union {tree[s]}
    /\ UNCHANGED <<writers, log, tree, batch>>

Crash(s) ==
    /\ tree' = [tree EXCEPT ![s] = Unknown]
    /\ batch' = [batch EXCEPT ![s] = <<>>]
    /\ UNCHANGED <<writers, log, signed>>

-----------------------------------------------------------------------------

Init ==
    /\ phase = [t \in Transactions |-> "idle"]
    /\ work = [t \in Transactions |-> <<>>]
    /\ seen = [t \in Transactions |-> [i \in AllInstances |-> 0]]
    /\ xid = [t \in Transactions |-> 0]
    /\ next_xid = 1
    /\ log = {}
    /\ tree = [s \in Sealers |-> Unknown]
    /\ batch = [s \in Sealers |-> <<>>]
    /\ signed = {}

Writer(t) == Decide(t) \/ Lock(t) \/ Number(t) \/ Write(t) \/ Commit(t) \/ Abort(t)
Sealer(s) == Load(s) \/ Read(s) \/ Extend(s) \/ Sign(s) \/ Crash(s)

Next == (\E t \in Transactions : Writer(t)) \/ (\E s \in Sealers : Sealer(s))

Spec == Init /\ [][Next]_vars

\* A transaction that holds the lock ends, one way or the other.  The survivor comes back after every crash; what it
\* can do again and again, it does at last.  The other sealers may do as they like.
Fairness ==
    /\ \A t \in Transactions : WF_vars(Number(t) \/ Write(t) \/ Commit(t) \/ Abort(t))
    /\ SF_vars(Load(Survivor))
    /\ SF_vars(Read(Survivor))
    /\ SF_vars(Extend(Survivor))

FairSpec == Spec /\ Fairness

-----------------------------------------------------------------------------
\* The claims

Types ==
    /\ phase \in [Transactions -> Phases]
    /\ work \in [Transactions -> Works \union {<<>>}]
    /\ \A t \in Transactions : xid[t] < next_xid
    /\ \A t, u \in Transactions : t # u /\ xid[t] = xid[u] => xid[t] = 0
    /\ \A row \in log : row.index \in Nat

\* 1
Contiguous == {row.index : row \in log} = {n \in 0..Cardinality(log) : n < Cardinality(log)}
RowsAreForever == [][log \subseteq log']_vars

\* 2
OnlyCommitted ==
    /\ Sealed \subseteq Committed
    /\ Cardinality(Sealed) = Cardinality(log)

\* 3
IsPrefix(c, d) == Len(c) <= Len(d) /\ \A n \in 1..Len(c) : c[n] = d[n]
CheckpointsHold ==
    /\ \A c \in signed : \A n \in 1..Len(c) : [index |-> n - 1, event |-> c[n]] \in log
    /\ \A c, d \in signed : IsPrefix(c, d) \/ IsPrefix(d, c)

\* "Sequence q of instance i stands in the log before this row."
StandsBefore(i, q, row) ==
    \E old \in log : InstanceOf(old.event) = i /\ SequenceOf(old.event) = q /\ old.index < row.index

\* 4
InstanceOrder ==
    \A row \in log : \A q \in 1..(SequenceOf(row.event) - 1) : StandsBefore(InstanceOf(row.event), q, row)

\* 5
RegistryOrder ==
    \A row \in log :
        /\ \A q \in 1..RegistryOf(row.event) : StandsBefore(Registry, q, row)
        /\ InstanceOf(row.event) # Registry => ~StandsBefore(Registry, RegistryOf(row.event) + 1, row)

\* 6
NothingSkipped == \A e \in Committed : (\E d \in Sealed : Before(e, d)) => e \in Sealed

\* 7
AllGetSealed == \A t \in Transactions : (phase[t] = "committed") ~> (EventsOf(t) \subseteq Sealed)

\* Names do not matter; TLC needs to look at one of each kind only.  (Not for claim 7.)
Symmetry == Permutations(Transactions) \union Permutations(Instances) \union Permutations(Sealers)

=============================================================================

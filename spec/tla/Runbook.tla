------------------------------ MODULE Runbook ------------------------------
(***************************************************************************
A runbook: stop, resume, void, effects, survey and claim (spec/run.md,
section 9), while the world changes, executors die and workers linger.

WHAT IS CLAIMED

  1. Surveyed      Once something is pinned, no step is claimed without a
                   survey of it that found the pin equal, since the run was
                   last resumed.
  2. Sanctioned    Every resume was approved by the sovereign, for this very
                   stop, and no approval resumes twice.  No run is voided
                   without the sovereign's approval.
  3. Admitted      A step that is neither readOnly nor idempotent has had its
                   effect at most once for each attempt that the records
                   admit: its claims, without those that were declared not
                   done.
  4. NothingTwice  It has had its effect at most once, if operators declare
                   what they find when nothing of the attempt runs any more.
  5. Informed      A gated step begins only with an approval whose request
                   showed the value that the survey found.

WHAT IS MODELLED

Three steps: the first pins the world, the second has an effect, the third
has an effect and a gate.  The world takes any of a few values at any time.
A survey is asked for, read by an executor, and answered later; in between,
the world may change, the executor may die, the run may be stopped and asked
anew.  A worker claims, acts and reports, each at its own time; it may vanish
at any of them, or act long after its lease is gone.  Caps, lost leases and
operators all stop a run, so one action stands for them.

Servers are not modelled: what they know is in the store, and each action is
one commit.  A server that is killed is an executor that dies.
***************************************************************************)
EXTENDS Naturals, FiniteSets, TLC

CONSTANTS
    Values,     \* what the world may be
    None,       \* no value
    MaxStops    \* how often a run may stop

Steps == 1..3
Marked == {2, 3}    \* neither readOnly nor idempotent
Gated == 3

VARIABLES
    world,
    run,        \* executing, stopped, completed, voided
    step,       \* of each step: not_started, blocked, ready, in_progress, completed
    pinned,     \* the value of the pin
    before,     \* what it was before it was pinned anew; good in the next survey only
    survey,     \* the survey that is asked for: its number, or 0
    asked,      \* how many have been
    probe,      \* what an executor has read and not reported
    gate,       \* of the gated step: none, pending, approved, spent, moot
    request,    \* the value that its approver is shown
    stops,      \* how often the run stopped
    drift,      \* what the last stop found, if it was drift and there was something
    resume,     \* the gate of the last stop: none, pending, approved, rejected, spent
    void,       \* the gate for voiding: none, pending, approved
    lease,      \* the claim that holds the lease: its number, or 0
    hands,      \* workers that have begun and not ended: {[claim, step, acted]}
    claims,     \* of each step: how often it was claimed
    notDone,    \* of each step: how often it was declared that nothing was done
    unknown,    \* steps whose effect is unknown
    \* What only the claims look at.
    marks,      \* of each step: how often it had its effect
    looked,     \* the step with an equal survey since the last resume, or 0
    sanctioned, \* stops that the sovereign let go on
    resumed,    \* stops that were resumed
    resumes,    \* how often
    mayVoid,    \* the sovereign agreed to void
    blind,      \* a step was claimed without a survey
    misled      \* a gated step began on another value than its approver saw

recorded == <<run, step, pinned, before, survey, asked, gate, request, stops, drift, resume, void, lease, claims, notDone, unknown>>
ghosts == <<marks, looked, sanctioned, resumed, resumes, mayVoid, blind, misled>>
vars == <<world, probe, hands, recorded, ghosts>>

Types ==
    /\ world \in Values
    /\ run \in {"executing", "stopped", "completed", "voided"}
    /\ step \in [Steps -> {"not_started", "blocked", "ready", "in_progress", "completed"}]
    /\ {pinned, before, drift, request} \subseteq Values \union {None}
    /\ survey \in 0..asked
    /\ gate \in {"none", "pending", "approved", "spent", "moot"}
    /\ resume \in {"none", "pending", "approved", "rejected", "spent"}
    /\ void \in {"none", "pending", "approved"}
    /\ unknown \subseteq Marked

Init ==
    /\ world \in Values
    /\ run = "executing" /\ step = [s \in Steps |-> "not_started"]
    /\ pinned = None /\ before = None /\ drift = None /\ request = None /\ probe = None
    /\ survey = 0 /\ asked = 0 /\ stops = 0 /\ lease = 0
    /\ gate = "none" /\ resume = "none" /\ void = "none"
    /\ hands = {} /\ unknown = {}
    /\ claims = [s \in Steps |-> 0] /\ notDone = [s \in Steps |-> 0] /\ marks = [s \in Steps |-> 0]
    /\ looked = 0 /\ sanctioned = {} /\ resumed = {} /\ resumes = 0
    /\ mayVoid = FALSE /\ blind = FALSE /\ misled = FALSE

Open == {s \in Steps : step[s] # "completed"}
\* The step that the run is at; only where not all are completed.
Current == CHOOSE s \in Open : \A t \in Open : s <= t
Runs == run = "executing" /\ Open # {}
AllClaims == claims[1] + claims[2] + claims[3]

\* The guards, by name: each faulty twin replaces one.
NeedsSurvey == pinned # None
ResumeApproved == resume = "approved"
EffectsKnown == unknown = {}
\* What becomes of a moot gate when the run is resumed: it stays moot until the pins were looked at.
GateOnResume == "moot"

-----------------------------------------------------------------------------
(* The world, executors and workers *)

Change ==
    /\ world' \in Values /\ world' # world
    /\ UNCHANGED <<probe, hands, recorded, ghosts>>

Look ==
    /\ survey # 0
    /\ probe' = [number |-> survey, value |-> world]
    /\ UNCHANGED <<world, hands, recorded, ghosts>>

ExecutorDies ==
    /\ probe # None /\ probe' = None
    /\ UNCHANGED <<world, hands, recorded, ghosts>>

\* With a lease or without: nobody can call it back.
Act(h) ==
    /\ ~h.acted
    /\ hands' = (hands \ {h}) \union {[h EXCEPT !.acted = TRUE]}
    /\ marks' = [marks EXCEPT ![h.step] = @ + 1]
    /\ UNCHANGED <<world, probe, recorded, looked, sanctioned, resumed, resumes, mayVoid, blind, misled>>

WorkerDies(h) ==
    /\ hands' = hands \ {h}
    /\ UNCHANGED <<world, probe, recorded, ghosts>>

-----------------------------------------------------------------------------
(* The run goes on *)

Ask == survey' = asked + 1 /\ asked' = asked + 1

\* A step's turn has come: it waits for its gate, or for a survey, or begins.
Turn ==
    /\ Runs /\ survey = 0 /\ step[Current] = "not_started"
    /\ IF Current = Gated
       THEN /\ step' = [step EXCEPT ![Gated] = "blocked"]
            /\ gate' = "pending" /\ request' = pinned
            /\ UNCHANGED <<survey, asked>>
       ELSE IF NeedsSurvey
       THEN Ask /\ UNCHANGED <<step, gate, request>>
       ELSE step' = [step EXCEPT ![Current] = "ready"] /\ UNCHANGED <<survey, asked, gate, request>>
    /\ UNCHANGED <<world, probe, hands, run, pinned, before, stops, drift, resume, void, lease, claims, notDone, unknown, ghosts>>

\* The approval stays unspent until a survey finds all equal.
Approve ==
    /\ gate = "pending" /\ run \in {"executing", "stopped"}
    /\ IF ~NeedsSurvey /\ run = "executing"
       THEN /\ gate' = "spent" /\ step' = [step EXCEPT ![Gated] = "ready"] /\ UNCHANGED <<survey, asked>>
       ELSE /\ gate' = "approved" /\ UNCHANGED step
            /\ IF run = "executing" /\ survey = 0 THEN Ask ELSE UNCHANGED <<survey, asked>>
    /\ UNCHANGED <<world, probe, hands, run, pinned, before, request, stops, drift, resume, void, lease, claims, notDone, unknown, ghosts>>

\* The run stands still. The lease is gone, and what was done under it is unknown.
Halt(live, drifts) ==
    /\ stops < MaxStops
    /\ run' = "stopped" /\ stops' = stops + 1 /\ drift' = live /\ resume' = "pending"
    /\ survey' = 0 /\ lease' = 0
    /\ step' = IF lease # 0 THEN [step EXCEPT ![Current] = "ready"] ELSE step
    /\ unknown' = IF lease # 0 /\ Current \in Marked THEN unknown \union {Current} ELSE unknown
    /\ gate' = IF drifts /\ gate \in {"pending", "approved"} THEN "moot" ELSE gate
    /\ UNCHANGED <<pinned, before, asked, request, void, claims, notDone>>

\* By an operator, a cap, or a lease that ran out.
Stop ==
    /\ Runs /\ Halt(None, FALSE)
    /\ UNCHANGED <<world, probe, hands, ghosts>>

\* Nobody has answered in time.
Unanswered ==
    /\ survey # 0 /\ run = "executing" /\ Halt(None, TRUE)
    /\ UNCHANGED <<world, probe, hands, ghosts>>

\* The survey found the value, and the step begins, or is asked for again.
Equal(value) ==
    /\ pinned' = value /\ before' = None /\ survey' = 0 /\ looked' = Current
    /\ LET at == step[Current] IN
       /\ step' = IF (at = "not_started" /\ Current # Gated) \/ (at = "blocked" /\ gate = "approved")
                  THEN [step EXCEPT ![Current] = "ready"] ELSE step
       /\ gate' = IF at = "blocked" /\ gate = "approved" THEN "spent"
                  ELSE IF at = "blocked" /\ gate = "moot" THEN "pending" ELSE gate
       /\ request' = IF at = "blocked" /\ gate = "moot" THEN value ELSE request
       /\ misled' = (misled \/ (at = "blocked" /\ gate = "approved" /\ request # value))
    /\ UNCHANGED <<run, asked, stops, drift, resume, void, lease, claims, notDone, unknown>>
    /\ UNCHANGED <<marks, sanctioned, resumed, resumes, mayVoid, blind>>

Answer ==
    /\ probe # None /\ probe' = None
    /\ IF probe.number # survey
       THEN UNCHANGED <<recorded, ghosts>>
       ELSE IF probe.value \in {pinned, before}
       THEN Equal(probe.value)
       ELSE Halt(probe.value, TRUE) /\ UNCHANGED ghosts
    /\ UNCHANGED <<world, hands>>

Claim ==
    /\ Runs /\ survey = 0 /\ lease = 0 /\ step[Current] = "ready"
    /\ step' = [step EXCEPT ![Current] = "in_progress"]
    /\ claims' = [claims EXCEPT ![Current] = @ + 1]
    /\ lease' = AllClaims + 1
    /\ hands' = hands \union {[claim |-> AllClaims + 1, step |-> Current, acted |-> FALSE]}
    /\ blind' = (blind \/ (pinned # None /\ looked # Current))
    /\ UNCHANGED <<world, probe, run, pinned, before, survey, asked, gate, request, stops, drift, resume, void, notDone, unknown>>
    /\ UNCHANGED <<marks, looked, sanctioned, resumed, resumes, mayVoid, misled>>

\* Under its own lease only. The first step pins what is there.
Complete(h) ==
    /\ run = "executing" /\ h.acted /\ lease = h.claim
    /\ step' = [step EXCEPT ![h.step] = "completed"]
    /\ run' = IF h.step = 3 THEN "completed" ELSE run
    /\ pinned' = IF h.step = 1 THEN world ELSE pinned
    /\ lease' = 0 /\ hands' = hands \ {h} /\ looked' = 0
    /\ UNCHANGED <<world, probe, before, survey, asked, gate, request, stops, drift, resume, void, claims, notDone, unknown>>
    /\ UNCHANGED <<marks, sanctioned, resumed, resumes, mayVoid, blind, misled>>

-----------------------------------------------------------------------------
(* People *)

Sovereign ==
    /\ \/ /\ run = "stopped" /\ resume = "pending"
          /\ \/ resume' = "approved" /\ sanctioned' = sanctioned \union {stops}
             \/ resume' = "rejected" /\ UNCHANGED sanctioned
          /\ UNCHANGED <<void, mayVoid>>
       \/ /\ void = "pending" /\ void' = "approved" /\ mayVoid' = TRUE
          /\ UNCHANGED <<resume, sanctioned>>
    /\ UNCHANGED <<world, probe, hands, run, step, pinned, before, survey, asked, gate, request, stops, drift, lease, claims, notDone, unknown>>
    /\ UNCHANGED <<marks, looked, resumed, resumes, blind, misled>>

\* An operator asks the sovereign: once more to resume, or to void.
AskSovereign ==
    /\ \/ run = "stopped" /\ resume = "rejected" /\ resume' = "pending" /\ UNCHANGED void
       \/ run \notin {"completed", "voided"} /\ void = "none" /\ void' = "pending" /\ UNCHANGED resume
    /\ UNCHANGED <<world, probe, hands, run, step, pinned, before, survey, asked, gate, request, stops, drift, lease, claims, notDone, unknown, ghosts>>

Resume ==
    /\ run = "stopped" /\ ResumeApproved /\ EffectsKnown
    /\ run' = IF Open = {} THEN "completed" ELSE "executing"
    /\ resume' = "spent" /\ resumed' = resumed \union {stops} /\ resumes' = resumes + 1
    /\ looked' = 0 /\ drift' = None
    /\ pinned' = IF drift # None THEN drift ELSE pinned
    /\ before' = IF drift # None THEN pinned ELSE None
    /\ gate' = IF gate = "moot" THEN GateOnResume ELSE gate
    /\ request' = IF gate = "moot" THEN pinned' ELSE request
    /\ IF NeedsSurvey /\ Open # {} THEN Ask ELSE UNCHANGED <<survey, asked>>
    /\ UNCHANGED <<world, probe, hands, step, stops, void, lease, claims, notDone, unknown>>
    /\ UNCHANGED <<marks, sanctioned, mayVoid, blind, misled>>

\* What became of the attempt, as found when nothing of it runs any more.
Declare(s) ==
    /\ run = "stopped" /\ s \in unknown
    /\ \A h \in hands : h.step # s
    /\ unknown' = unknown \ {s}
    /\ IF marks[s] > 0
       THEN step' = [step EXCEPT ![s] = "completed"] /\ UNCHANGED notDone
       ELSE notDone' = [notDone EXCEPT ![s] = @ + 1] /\ UNCHANGED step
    /\ UNCHANGED <<world, probe, hands, run, pinned, before, survey, asked, gate, request, stops, drift, resume, void, lease, claims, ghosts>>

Void ==
    /\ run \notin {"completed", "voided"} /\ void = "approved"
    /\ run' = "voided" /\ survey' = 0 /\ lease' = 0
    /\ UNCHANGED <<world, probe, hands, step, pinned, before, asked, gate, request, stops, drift, resume, void, claims, notDone, unknown, ghosts>>

-----------------------------------------------------------------------------

Next ==
    \/ Change \/ Look \/ ExecutorDies \/ Turn \/ Approve \/ Stop \/ Unanswered \/ Answer \/ Claim
    \/ Sovereign \/ AskSovereign \/ Resume \/ Void
    \/ \E h \in hands : Act(h) \/ WorkerDies(h) \/ Complete(h)
    \/ \E s \in Marked : Declare(s)

Spec == Init /\ [][Next]_vars

Surveyed == ~blind
Sanctioned ==
    /\ resumed \subseteq sanctioned /\ resumes = Cardinality(resumed)
    /\ run = "voided" => mayVoid
Admitted == \A s \in Marked : marks[s] <= claims[s] - notDone[s]
NothingTwice == \A s \in Marked : marks[s] <= 1
Informed == ~misled

\* For the twins.
Always == TRUE
Never == FALSE
Pending == "pending"
=============================================================================

------------------------------ MODULE SealBlind ------------------------------
(***************************************************************************
A twin that TLC must reject: sealing without a look at xmin.

It differs from Seal in one definition, which SealBlind.cfg puts in the place
of Sealable.  The sealer takes whatever is committed now, in the order of xids,
and remembers the highest xid that it has sealed.  A transaction with a lower
xid that commits later is never looked at again.

Expected: NothingSkipped fails.
***************************************************************************)
EXTENDS Seal

CommittedAbove == {e \in Committed : \A d \in Sealed : XidOf(d) < XidOf(e)}

=============================================================================

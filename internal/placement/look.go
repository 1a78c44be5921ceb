package placement

import (
	"fmt"
	"time"
)

// Look takes in the nodes as they are now.
func (a *Admission) Look(now time.Time, nodes []Node) {
	a.Nodes, a.Stale = nodes, false
	seen, policy := a.snapshot(), a.Policy.withDefaults()
	var gone []string
	for i := range a.Tenants {
		t := &a.Tenants[i]
		switch t.Phase {
		case Starting:
			t.checkStart(now, seen, policy)
		case Holding, Yielding:
			t.checkLoss(now, seen, policy)
		case Leaving:
			switch {
			case !t.Done || seen.holdsResources(t.Run):
			case t.Again:
				t.enter(now, Waiting, t.Why)
				t.Again = false
			default:
				gone = append(gone, t.Run)
			}
		case Waiting:
			if epoch := seen.newestEpoch(t.Run); epoch > 0 { // of a start that was forgotten
				t.Epoch = max(t.Epoch, epoch)
				t.enter(now, Leaving, "instances of an earlier start end first")
				t.Again = true
			}
		}
	}
	for _, run := range gone {
		a.remove(run)
	}
}

// checkStart grants a gang that is whole, and takes back one that takes too long.
func (t *Tenant) checkStart(now time.Time, seen snapshot, policy Policy) {
	if !t.Done {
		return
	}
	missing := seen.missing(t)
	if missing == "" {
		t.enter(now, Holding, "")
		return
	}
	t.Why = missing
	if now.Sub(t.Since) >= policy.StartPatience {
		t.enter(now, Leaving, fmt.Sprintf("its last start was taken back after %s: %s", now.Sub(t.Since), missing))
		t.Again = true
		t.NotBefore = now.Add(noRoomPause)
	}
}

// checkLoss makes a gang that stays incomplete give up its room.
func (t *Tenant) checkLoss(now time.Time, seen snapshot, policy Policy) {
	missing := seen.missing(t)
	if missing == "" {
		t.Short = time.Time{}
		return
	}
	if t.Short.IsZero() {
		t.Short = now
	}
	if !t.Lost && now.Sub(t.Short) >= policy.LossGrace {
		t.enter(now, Yielding, "instances are lost, and there is no room for others: "+missing)
		t.Lost = true
	}
}

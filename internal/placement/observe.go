package placement

import (
	"fmt"
	"time"
)

// Look takes in the nodes as they are now.
func (f *Floor) Look(now time.Time, nodes []Node) {
	f.Nodes, f.Stale = nodes, false
	v := view{f}
	var gone []string
	for i := range f.Tenants {
		t := &f.Tenants[i]
		switch t.Phase {
		case Starting:
			v.lookAtStart(now, t)
		case Holding, Yielding:
			v.lookForLoss(now, t)
		case Leaving:
			switch {
			case !t.Done || v.holdsRoom(t.Run):
			case t.Again:
				t.enter(now, Waiting, t.Why)
				t.Again = false
			default:
				gone = append(gone, t.Run)
			}
		case Waiting:
			if epoch := v.newestMember(t.Run); epoch > 0 { // of a start that was forgotten
				t.Epoch = max(t.Epoch, epoch)
				t.enter(now, Leaving, "members of an earlier start end first")
				t.Again = true
			}
		}
	}
	for _, run := range gone {
		f.remove(run)
	}
}

// view reads what was seen of the cluster.
type view struct{ *Floor }

// holdsRoom reports whether members of a run hold room.
func (f view) holdsRoom(run string) bool {
	mine := of(run)
	for _, n := range f.Nodes {
		for _, m := range n.Members {
			if mine(m) && m.State != MemberEnded && m.State != MemberLost {
				return true
			}
		}
	}
	return false
}

// newestMember is the newest epoch of which a run has members on record; 0 for none.
func (f view) newestMember(run string) (epoch int) {
	mine := of(run)
	for _, n := range f.Nodes {
		for _, m := range n.Members {
			if mine(m) && m.OnRecord() {
				epoch = max(epoch, m.Epoch)
			}
		}
	}
	return epoch
}

// missing lists what a gang lacks; "" when it is whole.
func (f view) missing(t *Tenant) string {
	for _, j := range t.Need.Jobs(t.Run, t.Epoch, t.Priority) {
		if n := f.numOnRecord(j); n < j.Members {
			return fmt.Sprintf("%d of %d members of the %s run", n, j.Members, j.Role)
		}
	}
	return ""
}

// numOnRecord counts the members of a job that are on record and run.
func (f view) numOnRecord(j Job) (n int) {
	for _, node := range f.Nodes {
		for _, m := range node.Members {
			if m.Job == j.ID && m.Epoch == j.Epoch && m.OnRecord() && m.State == MemberRunning {
				n++
			}
		}
	}
	return n
}

// lookAtStart grants a gang that is whole, and takes back one that does not become so.
func (f view) lookAtStart(now time.Time, t *Tenant) {
	if !t.Done {
		return
	}
	missing := f.missing(t)
	if missing == "" {
		t.enter(now, Holding, "")
		return
	}
	t.Why = missing
	if now.Sub(t.Since) >= f.Policy.withDefaults().StartPatience {
		t.enter(now, Leaving, fmt.Sprintf("its last start was taken back after %s: %s", now.Sub(t.Since), missing))
		t.Again = true
		t.NotBefore = now.Add(noRoomPause)
	}
}

// lookForLoss has a gang that stays incomplete give up its room.
func (f view) lookForLoss(now time.Time, t *Tenant) {
	missing := f.missing(t)
	if missing == "" {
		t.Short = time.Time{}
		return
	}
	if t.Short.IsZero() {
		t.Short = now
	}
	if !t.Lost && now.Sub(t.Short) >= f.Policy.withDefaults().LossGrace {
		t.enter(now, Yielding, "members are lost, and there is no room for others: "+missing)
		t.Lost = true
	}
}

package chaos

import (
	"context"
	"os"
	"slices"
	"syscall"
	"time"
)

// killCues are the kills as things to do.
func (t *trial) killCues(kills []Kill) []cue {
	var out []cue
	for _, k := range kills {
		out = append(out, cue{k.After, k.Delay, func(ctx context.Context) error { return t.kill(ctx, k) }})
	}
	return out
}

// kill deals one kill, if a process of the victim's kind is alive.
func (t *trial) kill(ctx context.Context, k Kill) error {
	found := k.Victim.Find(os.Getpid())
	if len(found) == 0 {
		t.out.Missed++
		return nil
	}
	p := found[k.Pick%uint64(len(found))]
	if k.Life == Draining {
		if syscall.Kill(p.PID, syscall.SIGTERM) != nil { // it ended just now
			t.out.Missed++
			return nil
		}
		t.after(k.Pause, func(ctx context.Context) error {
			if !k.Victim.lives(p.PID) { // it drained in time
				t.out.Drained++
				return nil
			}
			return t.strike(ctx, k.Victim.Name, p.PID, Draining)
		})
		return nil
	}
	if k.Life == Starting {
		known := map[int]bool{}
		for _, other := range found {
			known[other.PID] = true
		}
		t.hunts = append(t.hunts, &hunt{kill: k, known: known, until: time.Now().Add(huntTimeout)})
	}
	return t.strike(ctx, k.Victim.Name, p.PID, Serving)
}

// hunt waits for the successor of a process that was killed.
type hunt struct {
	kill  Kill
	known map[int]bool // processes that were there before
	until time.Time
}

// follow plans the kill of the successor once it is born, and reports whether the hunt
// is over.
func (t *trial) follow(h *hunt, now time.Time) bool {
	for _, p := range h.kill.Victim.Find(os.Getpid()) {
		if !h.known[p.PID] {
			t.after(h.kill.Pause, func(ctx context.Context) error {
				if !h.kill.Victim.lives(p.PID) {
					t.out.Missed++
					return nil
				}
				return t.strike(ctx, h.kill.Victim.Name, p.PID, Starting)
			})
			return true
		}
	}
	if now.After(h.until) {
		t.out.Missed++
		return true
	}
	return false
}

// lives says whether a process still belongs to the victim's kind.
func (v Victim) lives(pid int) bool {
	return slices.ContainsFunc(v.Find(os.Getpid()), func(p Process) bool { return p.PID == pid })
}

// moveCues are the moves as things to do.
func (t *trial) moveCues(moves []Move) []cue {
	var out []cue
	for _, m := range moves {
		out = append(out, cue{m.After, m.Delay, func(ctx context.Context) error { return t.move(ctx, m) }})
	}
	return out
}

// move lets a member join or leave.
func (t *trial) move(ctx context.Context, m Move) error {
	k, err := t.fleet.keeper(m.Member)
	if err != nil {
		return err
	}
	if m.Join {
		t.join(k, m)
		return nil
	}
	how := "drains"
	k.want(false, false)
	if pid := k.running(); m.Gently {
		k.signal(syscall.SIGTERM)
	} else if how = "killed"; pid != 0 {
		if err := t.strike(ctx, k.Role, pid, Leaving); err != nil {
			return err
		}
	}
	t.moved(m.Member, how)
	if m.Away == 0 {
		t.gone[m.Member] = true
		return nil
	}
	t.after(m.Away, func(context.Context) error {
		if !t.gone[m.Member] {
			t.join(k, m)
		}
		return nil
	})
	return nil
}

func (t *trial) join(k *keeper, m Move) {
	k.want(true, false)
	t.moved(m.Member, "joins")
	if m.Dies > 0 {
		t.after(m.Dies, func(ctx context.Context) error {
			if pid := k.running(); pid != 0 {
				return t.strike(ctx, k.Role, pid, Joining)
			}
			t.out.Missed++
			return nil
		})
	}
}

// moved notes a move.
func (t *trial) moved(member, how string) {
	t.out.Moves = append(t.out.Moves, Moved{Member: member, How: how, After: len(t.seen), At: seconds(time.Since(t.began))})
}

package activities

import (
	"context"
	"fmt"
	"path"
	"strconv"
	"strings"

	"temper/internal/artifact"
)

// pruneTrajectories deletes the trajectories of old steps, after a save of the
// cursor. A step's trajectories are read until its batch is stored, by nothing
// after that: replays, forks and repeated stages go by batches, checkpoints and
// problems, all of which stay. So those of steps that the saved checkpoint contains
// may go, and which ones do is a function of the cursor: a death between two
// deletes leaves the rest to the next save.
func (s *session) pruneTrajectories(ctx context.Context, cursor int) error {
	at := cursor - s.cfg.SFT.Steps
	if at < 1 {
		return nil
	}
	keep := s.cfg.At(at).Checkpoint.KeepTrajectories
	if keep == 0 || at <= keep {
		return nil
	}
	infos, err := s.store.List(ctx, s.layout.Steps()+"/")
	if err != nil {
		return err
	}
	for _, info := range infos {
		if step, ok := stepOfGroup(s.layout, info.Key); !ok || step > at-keep {
			continue
		}
		if err := s.lease.Check(ctx); err != nil {
			return err
		}
		if err := s.store.Delete(ctx, info.Key); err != nil {
			return fmt.Errorf("delete trajectories: %w", err)
		}
	}
	return nil
}

// stepOfGroup reads the step from the key of a group; ok is false for other keys.
func stepOfGroup(layout artifact.Layout, key string) (step int, ok bool) {
	folder, problem := path.Split(strings.TrimPrefix(key, layout.Steps()+"/"))
	number, rest, _ := strings.Cut(folder, "/")
	step, err := strconv.Atoi(number)
	return step, err == nil && rest == "trajectories/" && path.Ext(problem) == ".jsonl"
}

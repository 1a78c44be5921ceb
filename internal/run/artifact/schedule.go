package artifact

import (
	"fmt"
	"path"
	"regexp"

	"temper/internal/rl"
)

// ScheduleRoot is the folder of all schedules.
const ScheduleRoot = "schedules"

var scheduleIDForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,39}$`)

// CheckScheduleID reports what is wrong with the id of a schedule, if anything. The id is
// shorter than that of a run, which adds a time to it.
func CheckScheduleID(id string) error {
	if !scheduleIDForm.MatchString(id) {
		return fmt.Errorf("schedule id %q: want 1 to 40 of A-Z, a-z, 0-9, '.', '_' and '-', starting with a letter or digit", id)
	}
	return nil
}

// Schedule makes the keys of one schedule of re-trainings.
type Schedule struct{ ID string }

// Dir is the folder of the schedule.
func (s Schedule) Dir() string { return path.Join(ScheduleRoot, s.ID) }

// Good points to the last good policy. It is moved by Swap alone.
func (s Schedule) Good() string { return path.Join(s.Dir(), "good.json") }

// Data is a snapshot of problems, by the SHA-256 of its content.
func (s Schedule) Data(sha256 string) string { return path.Join(s.Dir(), "data", sha256+".jsonl") }

// Plan is the key of a re-training's plan, by the id of its run.
func (s Schedule) Plan(runID string) string { return path.Join(s.Dir(), "plans", runID+".json") }

// Outcome is how a re-training ended, by the id of its run.
func (s Schedule) Outcome(runID string) string {
	return path.Join(s.Dir(), "outcomes", runID+".json")
}

// Judged reports that a re-training was judged on some data with some recipe, by a hash
// of both.
func (s Schedule) Judged(hash string) string { return path.Join(s.Dir(), "judged", hash+".json") }

// Events is the folder of the schedule's event log.
func (s Schedule) Events() string { return path.Join(s.Dir(), "events") }

// Event is one entry of that log; see Layout.Event.
func (s Schedule) Event(unixNano int64, kind, text string) string {
	return path.Join(s.Events(), eventName(unixNano, kind, text))
}

func eventName(unixNano int64, kind, text string) string {
	return fmt.Sprintf("%020d-%s-%08x.json", unixNano, kind, uint32(rl.Hash(text)))
}

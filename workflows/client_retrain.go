package workflows

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"

	"temper/internal/run/retrain"
)

// DefaultCatchup is how late a re-training may start after an outage of the
// server; what was missed for longer is left out. Temporal's own default is a year.
const DefaultCatchup = 6 * time.Hour

// ErrScheduleExists says that a schedule of that id is there.
var ErrScheduleExists = errors.New("exists already")

// Overlaps are the names of the policies for a re-training that is due while another one of
// the schedule is running. The first is the default.
func Overlaps() []string {
	return []string{"skip", "buffer-one", "buffer-all", "cancel-other", "terminate-other", "allow-all"}
}

func overlapPolicy(name string) (enums.ScheduleOverlapPolicy, error) {
	policies := []enums.ScheduleOverlapPolicy{
		enums.SCHEDULE_OVERLAP_POLICY_SKIP, enums.SCHEDULE_OVERLAP_POLICY_BUFFER_ONE, enums.SCHEDULE_OVERLAP_POLICY_BUFFER_ALL,
		enums.SCHEDULE_OVERLAP_POLICY_CANCEL_OTHER, enums.SCHEDULE_OVERLAP_POLICY_TERMINATE_OTHER, enums.SCHEDULE_OVERLAP_POLICY_ALLOW_ALL,
	}
	if i := slices.Index(Overlaps(), name); i >= 0 {
		return policies[i], nil
	}
	return 0, fmt.Errorf("overlap %q: want one of %s", name, strings.Join(Overlaps(), ", "))
}

// ScheduleSpec is a schedule of re-trainings.
type ScheduleSpec struct {
	// Retrain is the argument of each re-training; its ID is the schedule's.
	Retrain retrain.Input
	// Cron lines, with CRON_TZ= in front where the zone is not UTC.
	Cron []string
	// Every is an interval; 0 for none.
	Every   time.Duration
	Overlap string
	// Catchup is how late a re-training may start; at least 10 s.
	Catchup        time.Duration
	PauseOnFailure bool
	Paused         bool
	Note           string
}

// minCatchup is the server's lower bound.
const minCatchup = 10 * time.Second

// Validate reports everything that is wrong with the times and policies. retrain.Check
// checks the argument, and package cron the cron lines.
func (s ScheduleSpec) Validate() error {
	var bad []error
	if len(s.Cron) == 0 && s.Every == 0 {
		bad = append(bad, errors.New("neither cron nor interval: say when to re-train (--cron, --every)"))
	}
	if s.Every != 0 && s.Every < time.Second {
		bad = append(bad, fmt.Errorf("interval %s: want at least 1s", s.Every))
	}
	if s.Catchup < minCatchup {
		bad = append(bad, fmt.Errorf("catch-up window %s: want at least %s", s.Catchup, minCatchup))
	}
	_, err := overlapPolicy(s.Overlap)
	return errors.Join(append(bad, err)...)
}

// CreateSchedule makes a Temporal Schedule whose action is one Retrain with the
// argument of spec. People can edit, pause and trigger it in the web UI.
// Errors: ErrScheduleExists.
func CreateSchedule(ctx context.Context, c client.Client, spec ScheduleSpec) error {
	overlap, err := overlapPolicy(spec.Overlap)
	if err != nil {
		return err
	}
	id := spec.Retrain.ID
	times := client.ScheduleSpec{CronExpressions: commented(spec.Cron)}
	if spec.Every > 0 {
		times.Intervals = []client.ScheduleIntervalSpec{{Every: spec.Every}}
	}
	_, err = c.ScheduleClient().Create(ctx, client.ScheduleOptions{
		ID: id, Spec: times, Overlap: overlap, CatchupWindow: spec.Catchup,
		PauseOnFailure: spec.PauseOnFailure, Paused: spec.Paused, Note: spec.Note,
		Action: &client.ScheduleWorkflowAction{
			ID: RetrainWorkflowID(id), Workflow: TypeRetrain, TaskQueue: QueueControl, WorkflowTaskTimeout: taskTimeout,
			Args: []any{spec.Retrain}, StaticSummary: "re-training of schedule " + id,
		},
	})
	if errors.Is(err, temporal.ErrScheduleAlreadyRunning) {
		return fmt.Errorf("schedule %s %w: choose another id, or edit it in the web UI, or delete it first", id, ErrScheduleExists)
	}
	if err != nil {
		return fmt.Errorf("create schedule %s: %w", id, err)
	}
	return nil
}

// commented makes each line its own comment: the server turns lines into calendars
// and keeps nothing else of what a person wrote.
func commented(lines []string) []string {
	var out []string
	for _, line := range lines {
		times, _, _ := strings.Cut(line, "#")
		out = append(out, times+" # "+line)
	}
	return out
}

// Schedule is a schedule of re-trainings as the server has it.
type Schedule struct {
	ID     string
	Paused bool
	Note   string
	// When are the cron lines and intervals; of Schedules none is known.
	When []string
	Next []time.Time
	// Recent and Running are the workflow ids of re-trainings, newest last.
	Recent, Running []string
	// Skipped and Missed count re-trainings that were left out because another one was
	// running, or because the server was down for longer than the catch-up window.
	Skipped, Missed int
	Overlap         string
	Catchup         time.Duration
	PauseOnFailure  bool
	// Retrain is the argument; of Schedules only the ID is known.
	Retrain retrain.Input
}

// Schedules lists the schedules whose action is a re-training, by id.
func Schedules(ctx context.Context, c client.Client) ([]Schedule, error) {
	found, err := c.ScheduleClient().List(ctx, client.ScheduleListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list schedules: %w", err)
	}
	var out []Schedule
	for found.HasNext() {
		e, err := found.Next()
		if err != nil {
			return nil, fmt.Errorf("list schedules: %w", err)
		}
		if e.WorkflowType.Name != TypeRetrain {
			continue
		}
		out = append(out, Schedule{ID: e.ID, Paused: e.Paused, Note: e.Note, Next: e.NextActionTimes, Recent: started(e.RecentActions)})
	}
	slices.SortFunc(out, func(a, b Schedule) int { return strings.Compare(a.ID, b.ID) })
	return out, nil
}

func started(results []client.ScheduleActionResult) (ids []string) {
	for _, r := range results {
		if r.StartWorkflowResult != nil {
			ids = append(ids, r.StartWorkflowResult.WorkflowID)
		}
	}
	return ids
}

// FindSchedule describes one schedule. Errors: *serviceerror.NotFound, also for a
// schedule of something else.
func FindSchedule(ctx context.Context, c client.Client, id string) (Schedule, error) {
	d, err := c.ScheduleClient().GetHandle(ctx, id).Describe(ctx)
	if err != nil {
		return Schedule{}, err
	}
	action, ok := d.Schedule.Action.(*client.ScheduleWorkflowAction)
	if !ok || action.Workflow != TypeRetrain {
		return Schedule{}, serviceerror.NewNotFoundf("schedule %s starts no re-trainings", id)
	}
	s := Schedule{
		ID: id, Paused: d.Schedule.State.Paused, Note: d.Schedule.State.Note, Next: d.Info.NextActionTimes,
		Recent: started(d.Info.RecentActions), Skipped: d.Info.NumActionsSkippedOverlap, Missed: d.Info.NumActionsMissedCatchupWindow,
		Catchup: d.Schedule.Policy.CatchupWindow, PauseOnFailure: d.Schedule.Policy.PauseOnFailure,
	}
	for _, name := range Overlaps() {
		if p, err := overlapPolicy(name); err == nil && p == d.Schedule.Policy.Overlap {
			s.Overlap = name
		}
	}
	s.When = when(d.Schedule.Spec)
	for _, r := range d.Info.RunningWorkflows {
		s.Running = append(s.Running, r.WorkflowID)
	}
	return s, s.readArgument(action.Args)
}

// when describes the times of a schedule, some of which people may have edited.
func when(spec *client.ScheduleSpec) (out []string) {
	for _, c := range spec.Calendars {
		if c.Comment == "" {
			c.Comment = "a calendar without a comment (see the web UI)"
		}
		out = append(out, c.Comment)
	}
	for _, i := range spec.Intervals {
		out = append(out, fmt.Sprintf("every %s", i.Every))
	}
	return out
}

// readArgument decodes the argument, which people may have edited.
func (s *Schedule) readArgument(args []any) error {
	if len(args) != 1 {
		return fmt.Errorf("schedule %s has %d arguments, want one: edit it in the web UI", s.ID, len(args))
	}
	payload, ok := args[0].(*common.Payload)
	if !ok {
		return fmt.Errorf("argument of schedule %s is a %T, want a payload", s.ID, args[0])
	}
	if err := converter.GetDefaultDataConverter().FromPayload(payload, &s.Retrain); err != nil {
		return fmt.Errorf("argument of schedule %s: %w", s.ID, err)
	}
	if err := s.Retrain.CheckKeys(); err != nil {
		return fmt.Errorf("argument of schedule %s: %w", s.ID, err)
	}
	return nil
}

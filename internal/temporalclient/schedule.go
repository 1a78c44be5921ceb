package temporalclient

import (
	"context"
	"fmt"
	"time"

	"go.temporal.io/sdk/client"

	"temper/internal/blob"
	"temper/internal/config"
	"temper/internal/run/retrain"
	"temper/workflows"
)

// View is a schedule of re-trainings.
type View struct {
	ID     string `json:"id"`
	Paused bool   `json:"paused,omitempty"`
	Note   string `json:"note,omitempty"`
	// Next is when it is due, nil for never.
	Next *time.Time `json:"next,omitempty"`
	// Good is the last good policy, as RUN@POLICY, "" for none yet.
	Good string `json:"good,omitempty"`
	// Last is how the newest re-training ended, "" when none has.
	Last string `json:"last,omitempty"`
	// Details are there for a single schedule.
	*Details
}

// Details are the fields of a schedule that a list leaves out.
type Details struct {
	When           []string      `json:"when"`
	Overlap        string        `json:"overlap"`
	CatchupSeconds float64       `json:"catchup_seconds"`
	PauseOnFailure bool          `json:"pause_on_failure,omitempty"`
	Skipped        int           `json:"skipped,omitempty"`
	Missed         int           `json:"missed,omitempty"`
	Running        []string      `json:"running,omitempty"`
	Retrain        retrain.Input `json:"retrain"`
	// Policy is the last good one, nil for none yet, and PolicyPath where it lies.
	Policy     *retrain.GoodPolicy `json:"policy,omitempty"`
	PolicyPath string              `json:"policy_path,omitempty"`
	// Events are the newest ones, oldest first.
	Events []retrain.Event `json:"events,omitempty"`
}

// maxEvents is the number of events of a View.
const maxEvents = 20

// Describe reads what the store has of a schedule, without Details.
func Describe(ctx context.Context, store blob.Store, s workflows.Schedule) (View, error) {
	v, _, _, err := describe(ctx, store, s)
	return v, err
}

// DescribeWhole is Describe with Details.
func DescribeWhole(ctx context.Context, store blob.Store, s workflows.Schedule) (View, error) {
	v, good, events, err := describe(ctx, store, s)
	if err != nil {
		return v, err
	}
	v.Details = &Details{
		When: s.When, Overlap: s.Overlap, CatchupSeconds: s.Catchup.Seconds(), PauseOnFailure: s.PauseOnFailure,
		Skipped: s.Skipped, Missed: s.Missed, Running: s.Running, Retrain: s.Retrain,
		Events: events[max(0, len(events)-maxEvents):],
	}
	if good != nil {
		v.Policy, v.PolicyPath = good, store.Locate(good.Policy.Ref.Key)
	}
	return v, nil
}

func describe(ctx context.Context, store blob.Store, s workflows.Schedule) (View, *retrain.GoodPolicy, []retrain.Event, error) {
	v := View{ID: s.ID, Paused: s.Paused, Note: s.Note}
	if len(s.Next) > 0 {
		v.Next = &s.Next[0]
	}
	events, err := retrain.Events(ctx, store, s.ID)
	if err != nil {
		return v, nil, nil, err
	}
	if n := len(events); n > 0 {
		v.Last = fmt.Sprintf("%s: %s", events[n-1].Kind, events[n-1].Text)
	}
	good, ok, err := retrain.ReadGood(ctx, store, s.ID)
	if err != nil || !ok {
		return v, nil, events, err
	}
	v.Good = config.PolicyName(good.RunID, good.Policy.Version)
	return v, &good, events, nil
}

// Due says when a schedule starts its next re-training.
func (v View) Due() string {
	switch {
	case v.Paused:
		return "paused"
	case v.Next != nil:
		return v.Next.UTC().Format(time.RFC3339)
	default:
		return "never due"
	}
}

// All describes the schedules of a server by one of Describe and DescribeWhole.
func All(ctx context.Context, c client.Client, store blob.Store, describe func(context.Context, blob.Store, workflows.Schedule) (View, error)) ([]View, error) {
	found, err := workflows.Schedules(ctx, c)
	views := []View{} // an empty list is no null
	for _, f := range found {
		v, err := describe(ctx, store, f)
		if err != nil {
			return nil, err
		}
		views = append(views, v)
	}
	return views, err
}

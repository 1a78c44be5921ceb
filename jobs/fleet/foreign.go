package fleet

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/hashicorp/nomad/api"

	"temper/jobs"
	"temper/jobs/nomad"
)

// vacant is the index over which a job is written that does not run: 0 where there is none, else that of the one that is
// stopped, whoever made it.
func (p comparison) vacant(ctx context.Context, id string) (uint64, error) {
	job, _, err := p.nomad.Jobs().Info(id, nomad.Query(ctx))
	if err = p.nomad.Fail("read job "+id, err); errors.Is(err, nomad.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	if !nomad.Deref(job.Stop) {
		return 0, fmt.Errorf("job %s: %w while it was looked at: plan again", id, nomad.ErrChanged)
	}
	return nomad.Deref(job.JobModifyIndex), nil
}

// foreign are the paths of what somebody else has changed since we wrote a job: a change takes our hash along, so that the
// oldest version with the hash of the newest one is ours. Nomad keeps few versions, and what is older is not found.
// What the file says as well is left out: writes are those that a plan would change back.
func (p comparison) foreign(ctx context.Context, stub *api.JobListStub, writes []Field) ([]string, error) {
	hash := stub.Meta[jobs.MetaSpec]
	if hash == "" {
		return []string{"Meta[" + jobs.MetaSpec + "]"}, nil
	}
	versions, _, _, err := p.nomad.Jobs().Versions(stub.ID, false, nomad.Query(ctx))
	if err != nil {
		return nil, p.nomad.Fail("read the versions of "+stub.ID, err)
	}
	var ours *api.Job
	for _, v := range versions { // the newest first
		if v.Meta[jobs.MetaSpec] == hash {
			ours = v
		}
	}
	if ours == nil {
		return nil, nil
	}
	same, err := sameContent(versions[0], ours)
	if err != nil || same {
		return nil, err
	}
	ours.Stop = new(false)
	if delete(ours.Meta, jobs.MetaAttempt); stub.Meta[jobs.MetaAttempt] != "" {
		ours.Meta[jobs.MetaAttempt] = stub.Meta[jobs.MetaAttempt]
	}
	if err := p.keepCounts(ctx, ours); err != nil {
		return nil, err
	}
	found, _, err := p.nomad.Jobs().Plan(ours, true, nomad.Write(ctx))
	if err != nil {
		return nil, p.nomad.Fail("compare the versions of "+stub.ID, err)
	}
	theirs, lost := paths(fields(found.Diff)), paths(writes)
	return slices.DeleteFunc(theirs, func(path string) bool { return !slices.Contains(lost, path) }), nil
}

// sameContent compares two versions as the servers hold them, but for what we and they change ourselves. A server of
// another version than the one that took a job reads it with other defaults, and would find differences in a plan.
func sameContent(a, b *api.Job) (bool, error) {
	one, err := content(a)
	if err != nil {
		return false, err
	}
	other, err := content(b)
	return bytes.Equal(one, other), err
}

// content is a version of a job without what does not count.
func content(j *api.Job) ([]byte, error) {
	text, err := json.Marshal(j)
	if err != nil {
		return nil, err
	}
	var lean api.Job
	if err := json.Unmarshal(text, &lean); err != nil {
		return nil, err
	}
	lean.Version, lean.VersionTag, lean.JobModifyIndex, lean.ModifyIndex, lean.CreateIndex, lean.SubmitTime = nil, nil, nil, nil, nil, nil
	lean.Status, lean.StatusDescription, lean.Stable, lean.Stop = nil, nil, nil, nil
	delete(lean.Meta, jobs.MetaAttempt)
	for _, g := range lean.TaskGroups {
		if g.Scaling != nil {
			g.Count, g.Scaling.CreateIndex, g.Scaling.ModifyIndex = nil, 0, 0
		}
	}
	return json.Marshal(lean)
}

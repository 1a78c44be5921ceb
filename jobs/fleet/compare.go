package fleet

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/nomad/api"

	"temper/jobs"
	"temper/jobs/nomad"
)

// vacant returns the index over which a job that does not run is written: 0 when it does
// not exist, else the index of the stopped job.
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

// foreign returns the paths of the fields that others have changed since temper wrote a
// job. A change keeps the job's hash, so the oldest version with the hash of the newest one
// was written by temper. Nomad keeps few versions, and an older one is not found. It leaves
// out changes that the file makes as well: writes lists the fields that a plan would change
// back.
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
	for _, v := range versions { // newest first
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

// sameContent compares two versions as the servers hold them, without the fields that
// servers set and the fields that change with each try. A server of another version than
// the one that accepted a job reads it with other defaults, and a plan would show
// differences.
func sameContent(a, b *api.Job) (bool, error) {
	one, err := content(a)
	if err != nil {
		return false, err
	}
	other, err := content(b)
	return bytes.Equal(one, other), err
}

// content encodes a version of a job without those fields.
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

// fields flattens the difference of a job.
func fields(d *api.JobDiff) []Field {
	if d == nil || d.Type == "None" {
		return nil
	}
	var out []Field
	out = appendFields(out, "", d.Fields)
	out = appendObjects(out, "", d.Objects)
	for _, g := range d.TaskGroups {
		out = groupFields(out, g)
	}
	// The hash means nothing to a reader.
	return slices.DeleteFunc(out, func(f Field) bool { return f.Path == "Meta["+jobs.MetaSpec+"]" && len(out) > 1 })
}

// paths returns the paths of fields.
func paths(fields []Field) []string {
	var out []string
	for _, f := range fields {
		out = append(out, f.Path)
	}
	return out
}

func groupFields(out []Field, g *api.TaskGroupDiff) []Field {
	if g.Type == "None" {
		return out
	}
	at := g.Name + "."
	out = appendFields(out, at, g.Fields)
	out = appendObjects(out, at, g.Objects)
	for _, t := range g.Tasks {
		if t.Type == "None" {
			continue
		}
		from := len(out)
		out = appendFields(out, at+t.Name+".", t.Fields)
		out = appendObjects(out, at+t.Name+".", t.Objects)
		for i := from; i < len(out); i++ {
			if out[i].Forces == "" {
				out[i].Forces = strings.Join(t.Annotations, ", ")
			}
		}
	}
	return out
}

func appendFields(out []Field, at string, fields []*api.FieldDiff) []Field {
	for _, d := range fields {
		if d.Type != "None" {
			out = append(out, Field{Path: at + d.Name, Old: d.Old, New: d.New, Forces: strings.Join(d.Annotations, ", ")})
		}
	}
	return out
}

func appendObjects(out []Field, at string, objects []*api.ObjectDiff) []Field {
	for _, d := range objects {
		if d.Type != "None" {
			out = appendFields(out, at+d.Name+".", d.Fields)
			out = appendObjects(out, at+d.Name+".", d.Objects)
		}
	}
	return out
}

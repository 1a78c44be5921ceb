package fleet

import (
	"slices"
	"strings"

	"github.com/hashicorp/nomad/api"

	"temper/jobs"
)

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
	// The hash and the index of our own making say nothing to a person.
	return slices.DeleteFunc(out, func(f Field) bool { return f.Path == "Meta["+jobs.MetaSpec+"]" && len(out) > 1 })
}

// paths are those of fields.
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

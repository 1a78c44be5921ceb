package fleet

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/nomad/api"

	"temper/internal/role"
	"temper/jobs"
	"temper/jobs/nomad"
)

// InitOptions say what is made new.
type InitOptions struct {
	// Rotate makes new tokens and certificates where there are some.
	Rotate bool
	// NomadTokens are tokens of Nomad that the service uses: of role.Control and of jobs.Runs. One
	// that is left out stays as it is.
	NomadTokens map[string]string
	// PostgresPassword is that of Temporal's account; empty leaves it as it is.
	PostgresPassword string
	Say              func(string)
}

// keeper holds the secrets of a cluster.
type keeper struct{ *Fleet }

// vault is the variable with all secrets of the cluster. Jobs cannot read it: each has a
// copy of what it needs, and no more, in a variable of its own.
func (f keeper) vault() string { return "temper/" + f.build.Name }

// tokens are the items that are random texts.
func (f keeper) tokens() []string {
	out := []string{jobs.ItemSandboxToken, jobs.ItemNodeToken, jobs.ItemAccessKey, jobs.ItemSecretKey}
	if f.build.Roles.UI.Count > 0 {
		out = append(out, jobs.ItemUIToken)
	}
	if f.build.Roles.Postgres.Count > 0 {
		out = append(out, jobs.ItemPostgresPassword)
	}
	return out
}

// keptTokens are not rotated with the others: the account of the object store is also that of
// clients outside of the cluster, and Postgres knows the password that it was made with.
var keptTokens = []string{jobs.ItemAccessKey, jobs.ItemSecretKey, jobs.ItemPostgresPassword}

// Init makes the secrets of the cluster and gives each job what it needs. What is there
// stays, unless it is to be rotated.
func (f *Fleet) Init(ctx context.Context, o InitOptions) error {
	if _, err := f.ours(ctx); err != nil { // another cluster of the name keeps its secrets
		return err
	}
	held, index, err := keeper{f}.variable(ctx, keeper{f}.vault())
	if err != nil {
		return err
	}
	items := maps.Clone(held)
	made := keeper{f}.makeTokens(items, o.Rotate)
	taken, err := keeper{f}.takeTokens(items, o.NomadTokens)
	if err != nil {
		return err
	}
	took, err := keeper{f}.takePassword(items, o.PostgresPassword)
	if err != nil {
		return err
	}
	taken = append(taken, took...)
	if f.build.TLS {
		certs, err := keeper{f}.makeCertificates(ctx, items, o.Rotate)
		if err != nil {
			return err
		}
		made = append(made, certs...)
	}
	if err := (keeper{f}).store(ctx, keeper{f}.vault(), items, index, !maps.Equal(held, items)); err != nil {
		return err
	}
	for _, name := range made {
		o.Say("made " + name)
	}
	for _, name := range taken {
		o.Say("took " + name)
	}
	if err := (keeper{f}).handAll(ctx, keeper{f}.holders(), items, o.Say); err != nil {
		return err
	}
	there, err := f.ours(ctx) // late: a run that was admitted meanwhile has a copy of before
	if err != nil {
		return err
	}
	if err := (keeper{f}).handAll(ctx, keeper{f}.runs(there), items, o.Say); err != nil {
		return err
	}
	if len(made) == 0 {
		o.Say("every secret is there")
	}
	return nil
}

// handAll gives holders what they need.
func (f keeper) handAll(ctx context.Context, to []holder, items map[string]string, say func(string)) error {
	for _, h := range to {
		wrote, err := f.hand(ctx, h.path, h.role, h.items, items)
		if err != nil {
			return err
		}
		if wrote {
			say("wrote the variable " + h.path)
		}
	}
	return nil
}

// holder is a variable with the secrets of a role, or of all jobs of runs.
type holder struct {
	role, path string
	items      []string
}

// holders are those of the cluster, in the order of their jobs.
func (f keeper) holders() (out []holder) {
	for _, j := range f.build.All() {
		for path, items := range jobs.Secrets(j) {
			out = append(out, holder{j.Meta[jobs.MetaRole], path, items})
		}
	}
	if items := f.build.RunItems(); len(items) > 0 {
		out = append(out, holder{jobs.Runs, f.build.RunsVariable(), items})
	}
	return out
}

// runs are those of the runs that have workers now: each was given a copy when it was admitted.
func (f keeper) runs(there map[string]*api.JobListStub) (out []holder) {
	for _, id := range slices.Sorted(maps.Keys(there)) {
		if s := there[id]; s.Meta[jobs.MetaRun] != "" && !s.Stop {
			out = append(out, holder{jobs.Runs, jobs.RunVariable(id), f.build.RunItems()})
		}
	}
	return out
}

// takeTokens keeps the tokens of Nomad that the operator hands over, and finds those that
// are missing.
func (f keeper) takeTokens(items, given map[string]string) (taken []string, err error) {
	if p := f.build.Placement; !p.On() || !p.Token {
		if len(given) > 0 {
			return nil, fmt.Errorf("%w: the cluster's file says that the service needs no token of Nomad: set placement.nomad and placement.token", ErrNotWanted)
		}
		return nil, nil
	}
	var lacks []string
	for _, name := range []string{role.Control, jobs.Runs} {
		item := name + "_" + jobs.ItemNomadToken
		if token := given[name]; token != "" {
			if items[item] != token {
				items[item], taken = token, append(taken, item)
			}
			continue
		}
		if items[item] == "" {
			lacks = append(lacks, "--"+name+"-nomad-token")
		}
	}
	if len(lacks) > 0 {
		return nil, fmt.Errorf("%w: placement.token asks for tokens of Nomad: make them for the policies deploy/nomad/acl/control.hcl and run.hcl, and name their files with %s",
			ErrNoSecrets, strings.Join(lacks, " and "))
	}
	return taken, nil
}

// takePassword keeps the password of Postgres.
func (f keeper) takePassword(items map[string]string, given string) (taken []string, err error) {
	switch item := jobs.ItemPostgresPassword; {
	case f.build.Roles.Postgres.Count > 0 && given == "": // ours has one of our making
		return nil, nil
	case f.build.Postgres == "" && given != "":
		return nil, fmt.Errorf("%w: the cluster's file names no Postgres: set postgres, or leave --postgres-password out", ErrNotWanted)
	case f.build.Postgres != "" && given == "" && items[item] == "":
		return nil, fmt.Errorf("%w: Temporal's account of %s has a password: name its file with --postgres-password", ErrNoSecrets, f.build.Postgres)
	case given == "" || items[item] == given:
		return nil, nil
	case strings.ContainsAny(given, "'\"`\\#$\r\n\x00"):
		return nil, fmt.Errorf("%w: the password of Temporal's account of %s has a quote, a backslash, a #, a $ or a line break, which no file of variables takes as it is: give the account another one", ErrNotWanted, f.build.Postgres)
	default:
		items[item] = given
		return []string{item}, nil
	}
}

// ErrNotWanted says that something was handed over that nothing uses.
var ErrNotWanted = errors.New("not wanted")

// makeTokens fills in what is missing and names what it made.
func (f keeper) makeTokens(items map[string]string, rotate bool) (made []string) {
	for _, name := range f.tokens() {
		if items[name] == "" || rotate && !slices.Contains(keptTokens, name) {
			items[name] = rand.Text()
			made = append(made, name)
		}
	}
	return made
}

// hand writes what a job needs into its variable.
func (f keeper) hand(ctx context.Context, path, role string, names []string, items map[string]string) (wrote bool, err error) {
	held, index, err := f.variable(ctx, path)
	if err != nil {
		return false, err
	}
	want := maps.Clone(held) // the operator may have added some
	for _, name := range names {
		v := items[role+"_"+name] // a certificate is that of the role
		if v == "" {
			v = items[name]
		}
		if v == "" {
			continue
		}
		want[name] = v
	}
	if maps.Equal(held, want) {
		return false, nil
	}
	return true, f.store(ctx, path, want, index, true)
}

// variable reads a variable; one that is not there is empty.
func (f keeper) variable(ctx context.Context, path string) (map[string]string, uint64, error) {
	v, _, err := f.nomad.Variables().Read(path, nomad.Query(ctx))
	if errors.Is(err, api.ErrVariablePathNotFound) {
		return map[string]string{}, 0, nil
	}
	if err != nil {
		return nil, 0, f.nomad.Fail("read the variable "+path, err)
	}
	return v.Items, v.ModifyIndex, nil
}

// store writes a variable over the version that was read.
func (f keeper) store(ctx context.Context, path string, items map[string]string, index uint64, changed bool) error {
	if !changed {
		return nil
	}
	_, _, err := f.nomad.Variables().CheckedUpdate(&api.Variable{Path: path, Items: items, ModifyIndex: index}, nomad.Write(ctx))
	var conflict api.ErrCASConflict
	if errors.As(err, &conflict) {
		return fmt.Errorf("the variable %s was changed meanwhile: init again", path)
	}
	return f.nomad.Fail("write the variable "+path, err)
}

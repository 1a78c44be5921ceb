package fleet

import (
	"cmp"
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

// InitOptions select the secrets that Init makes and takes.
type InitOptions struct {
	// Rotate replaces existing tokens and certificates.
	Rotate bool
	// NomadTokens holds the Nomad tokens of role.Control and of jobs.Runs. A token
	// that is left out stays unchanged.
	NomadTokens map[string]string
	// PostgresPassword is the password of Temporal's account; empty leaves it unchanged.
	PostgresPassword string
	Say              func(string)
}

// vault is the variable with all secrets of the cluster. Jobs cannot read it: each has a
// separate variable with a copy of exactly the secrets that it needs.
type vault struct {
	nomad *nomad.Client
	build jobs.Build
	path  string
	// stored holds the items as read at index, items the items to write.
	stored, items map[string]string
	index         uint64
	// made names the items that Init made, taken the items that the operator supplied.
	made, taken []string
}

func vaultPath(b jobs.Build) string { return "temper/" + b.Name }

// openVault reads the vault; a missing vault is empty.
func (f *Fleet) openVault(ctx context.Context) (*vault, error) {
	v := &vault{nomad: f.nomad, build: f.build, path: vaultPath(f.build)}
	var err error
	v.stored, v.index, err = readVariable(ctx, f.nomad, v.path)
	v.items = maps.Clone(v.stored)
	return v, err
}

// tokens returns the names of the random items.
func (v *vault) tokens() []string {
	out := []string{jobs.ItemSandboxToken, jobs.ItemNodeToken, jobs.ItemAccessKey, jobs.ItemSecretKey}
	if v.build.Roles.UI.Count > 0 {
		out = append(out, jobs.ItemUIToken)
	}
	if v.build.Roles.Postgres.Count > 0 {
		out = append(out, jobs.ItemPostgresPassword)
	}
	return out
}

// keptTokens lists tokens that a rotation keeps: clients outside of the cluster use the
// account of the object store, and Postgres keeps the password from its setup.
var keptTokens = []string{jobs.ItemAccessKey, jobs.ItemSecretKey, jobs.ItemPostgresPassword}

// Init makes the secrets of the cluster and gives each job the ones that it needs. It keeps
// an existing secret unless Rotate is set.
func (f *Fleet) Init(ctx context.Context, o InitOptions) error {
	if _, err := f.ours(ctx); err != nil { // do not overwrite the secrets of another cluster with this name
		return err
	}
	v, err := f.openVault(ctx)
	if err != nil {
		return err
	}
	v.makeTokens(o.Rotate)
	if err := v.takeTokens(o.NomadTokens); err != nil {
		return err
	}
	if err := v.takePassword(o.PostgresPassword); err != nil {
		return err
	}
	if f.build.TLS {
		if err := v.makeCertificates(ctx, o.Rotate); err != nil {
			return err
		}
	}
	if err := v.save(ctx); err != nil {
		return err
	}
	for _, name := range v.made {
		o.Say("made " + name)
	}
	for _, name := range v.taken {
		o.Say("took " + name)
	}
	if err := v.copyTo(ctx, copies(f.build), o.Say); err != nil {
		return err
	}
	there, err := f.ours(ctx) // last: a run that was admitted meanwhile has old copies
	if err != nil {
		return err
	}
	if err := v.copyTo(ctx, runCopies(f.build, there), o.Say); err != nil {
		return err
	}
	if len(v.made) == 0 {
		o.Say("every secret is there")
	}
	return nil
}

// save writes the vault over the version that was read.
func (v *vault) save(ctx context.Context) error {
	if maps.Equal(v.stored, v.items) {
		return nil
	}
	return writeVariable(ctx, v.nomad, v.path, v.items, v.index)
}

// secretCopy is a variable with the secrets of a role, or of all jobs of runs.
type secretCopy struct {
	role, path string
	items      []string
}

// copies returns the variables of the cluster's jobs, in the order of the jobs.
func copies(b jobs.Build) (out []secretCopy) {
	for _, j := range b.All() {
		for path, items := range jobs.Secrets(j) {
			out = append(out, secretCopy{j.Meta[jobs.MetaRole], path, items})
		}
	}
	if items := b.RunItems(); len(items) > 0 {
		out = append(out, secretCopy{jobs.Runs, b.RunsVariable(), items})
	}
	return out
}

// runCopies returns the variables of the runs with workers: each got its copy at its
// admission.
func runCopies(b jobs.Build, there map[string]*api.JobListStub) (out []secretCopy) {
	for _, id := range slices.Sorted(maps.Keys(there)) {
		if s := there[id]; s.Meta[jobs.MetaRun] != "" && !s.Stop {
			out = append(out, secretCopy{jobs.Runs, jobs.RunVariable(id), b.RunItems()})
		}
	}
	return out
}

// copyTo writes the needed secrets into the variables of jobs.
func (v *vault) copyTo(ctx context.Context, all []secretCopy, say func(string)) error {
	for _, c := range all {
		stored, index, err := readVariable(ctx, v.nomad, c.path)
		if err != nil {
			return err
		}
		want := maps.Clone(stored) // the operator may have added items
		for _, name := range c.items {
			if text := cmp.Or(v.items[c.role+"_"+name], v.items[name]); text != "" { // each role has a separate certificate
				want[name] = text
			}
		}
		if maps.Equal(stored, want) {
			continue
		}
		if err := writeVariable(ctx, v.nomad, c.path, want, index); err != nil {
			return err
		}
		say("wrote the variable " + c.path)
	}
	return nil
}

// takeTokens stores the Nomad tokens of the operator. It returns an error when one is
// missing.
func (v *vault) takeTokens(given map[string]string) error {
	if p := v.build.Placement; !p.On() || !p.Token {
		if len(given) > 0 {
			return fmt.Errorf("%w: the cluster's file says that the service needs no token of Nomad: set placement.nomad and placement.token", ErrNotWanted)
		}
		return nil
	}
	var lacks []string
	for _, name := range []string{role.Control, jobs.Runs} {
		item := name + "_" + jobs.ItemNomadToken
		if token := given[name]; token != "" {
			if v.items[item] != token {
				v.items[item], v.taken = token, append(v.taken, item)
			}
			continue
		}
		if v.items[item] == "" {
			lacks = append(lacks, "--"+name+"-nomad-token")
		}
	}
	if len(lacks) > 0 {
		return fmt.Errorf("%w: placement.token asks for tokens of Nomad: make them for the policies deploy/nomad/acl/control.hcl and run.hcl, and name their files with %s",
			ErrNoSecrets, strings.Join(lacks, " and "))
	}
	return nil
}

// takePassword stores the password of Postgres.
func (v *vault) takePassword(given string) error {
	switch item := jobs.ItemPostgresPassword; {
	case v.build.Roles.Postgres.Count > 0 && given == "": // makeTokens has made the password
		return nil
	case v.build.Postgres == "" && given != "":
		return fmt.Errorf("%w: the cluster's file names no Postgres: set postgres, or leave --postgres-password out", ErrNotWanted)
	case v.build.Postgres != "" && given == "" && v.items[item] == "":
		return fmt.Errorf("%w: Temporal's account of %s has a password: name its file with --postgres-password", ErrNoSecrets, v.build.Postgres)
	case given == "" || v.items[item] == given:
		return nil
	case strings.ContainsAny(given, "'\"`\\#$\r\n\x00"):
		return fmt.Errorf("%w: the password of Temporal's account of %s has a quote, a backslash, a #, a $ or a line break, which no file of variables takes as it is: give the account another one", ErrNotWanted, v.build.Postgres)
	default:
		v.items[item], v.taken = given, append(v.taken, item)
		return nil
	}
}

// ErrNotWanted means that the operator supplied a secret that no job uses.
var ErrNotWanted = errors.New("not wanted")

// makeTokens makes the missing tokens.
func (v *vault) makeTokens(rotate bool) {
	for _, name := range v.tokens() {
		if v.items[name] == "" || rotate && !slices.Contains(keptTokens, name) {
			v.items[name] = rand.Text()
			v.made = append(v.made, name)
		}
	}
}

// readVariable reads a variable and its index; a missing variable is empty.
func readVariable(ctx context.Context, client *nomad.Client, path string) (map[string]string, uint64, error) {
	v, _, err := client.Variables().Read(path, nomad.Query(ctx))
	if errors.Is(err, api.ErrVariablePathNotFound) {
		return map[string]string{}, 0, nil
	}
	if err != nil {
		return nil, 0, client.Fail("read the variable "+path, err)
	}
	return v.Items, v.ModifyIndex, nil
}

// writeVariable writes a variable over the version that was read.
func writeVariable(ctx context.Context, client *nomad.Client, path string, items map[string]string, index uint64) error {
	_, _, err := client.Variables().CheckedUpdate(&api.Variable{Path: path, Items: items, ModifyIndex: index}, nomad.Write(ctx))
	var conflict api.ErrCASConflict
	if errors.As(err, &conflict) {
		return fmt.Errorf("the variable %s was changed meanwhile: init again", path)
	}
	return client.Fail("write the variable "+path, err)
}

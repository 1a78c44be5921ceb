package spec

import (
	"fmt"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"temper/internal/config"
	"temper/internal/role"
)

// names matches a valid start of the ids of jobs and of the names of services.
var names = regexp.MustCompile(`^[a-z]([a-z0-9-]{0,30}[a-z0-9])?$`)

// MaxDrain bounds how long an instance may continue; clients of Nomad also bound it
// (max_kill_timeout).
const MaxDrain = 30 * time.Minute

// leastMemory is the smallest memory of a task in Nomad, in bytes.
const leastMemory = 10 << 20

// finder collects problems.
type finder struct{ found config.Problems }

func (f *finder) add(path, format string, args ...any) {
	f.found = append(f.found, config.Problem{Path: path, Msg: fmt.Sprintf(format, args...)})
}

// problems returns all problems of the cluster's file.
func (c *Cluster) problems() config.Problems {
	f := &finder{}
	if !names.MatchString(c.Name) {
		f.add("name", "is %q, want 1 to 32 lower-case letters, digits and hyphens that begin with a letter: it begins the id of every job", c.Name)
	}
	if !filepath.IsAbs(c.Data) || filepath.Clean(c.Data) != c.Data {
		f.add("data", "is %q, want the absolute path of a folder on the nodes", c.Data)
	}
	if len(c.Nomad.Datacenters) == 0 {
		f.add("nomad.datacenters", `is empty: no node is in it; want names, or "*" for all`)
	}
	c.findPlaces(f)
	c.findPorts(f)
	c.findGPUs(f)
	for _, r := range c.Named() {
		c.findRole(f, r)
	}
	c.findMissing(f)
	c.findPlacement(f)
	return f.found
}

// findPlaces checks the servers outside the cluster.
func (c *Cluster) findPlaces(f *finder) {
	if c.Store != "" {
		place, err := config.ParseStore(c.Store)
		switch {
		case err != nil:
			for line := range strings.SplitSeq(err.Error(), "\n") {
				f.add("store", "%s", line)
			}
		case place.Kind == config.StoreS3D:
			f.add("store", "s3d:// is the server of temper up: leave this key out and set roles.objectstore.count to 1")
		case place.Kind == config.StoreFile && c.TLS:
			f.add("store", "is a folder of one machine, and tls: true is for several: name an S3 store, or leave this key out and set roles.objectstore.count to 1")
		}
	}
	if c.Temporal != "" {
		p := config.Process{TemporalAddress: c.Temporal}
		if err := p.Validate(); err != nil {
			f.add("temporal_address", "is %q, want host:port", c.Temporal)
		}
	}
	c.findPostgres(f)
	if c.StoreRole != "" && !strings.HasPrefix(c.Store, "s3://") {
		f.add("store_role", "is set, and store is %q: want one that begins with s3://, or leave this key out", c.Store)
	}
	if c.StoreRole != "" && c.StoreAudience == "" {
		f.add("store_audience", "is empty: want the audience of the identity, such as sts.amazonaws.com")
	}
}

// findPostgres checks the database of Temporal. Its URL is part of the job, which many may
// read.
func (c *Cluster) findPostgres(f *finder) {
	if own := c.Roles.Postgres; own.Count > 0 {
		if own.Driver == Docker && own.File == "" {
			f.add("roles.postgres.driver", "is docker, and programs.image has no Postgres: want raw_exec or exec, or a job file of your own (file)")
		}
		if c.Temporal != "" {
			f.add("roles.postgres.count", "is %d beside temporal_address, whose server keeps its own data: set it to 0", own.Count)
		}
		if c.Postgres != "" {
			f.add("roles.postgres.count", "is %d beside the key postgres, which names another server: one of the two", own.Count)
		}
	}
	if c.Postgres == "" {
		return
	}
	const want = "want postgres://user@host:port/database"
	u, err := url.Parse(c.Postgres)
	if err != nil {
		f.add("postgres", "is no URL; %s", want)
		return
	}
	_, password := u.User.Password()
	switch {
	case password:
		f.add("postgres", "holds a password, and all who may read the job would see it: leave it out, and name its file with temper cluster init --postgres-password")
	case u.Scheme != "postgres" && u.Scheme != "postgresql" || u.Hostname() == "" || u.User.Username() == "" || len(u.Path) < 2 || strings.Contains(u.Path[1:], "/"):
		f.add("postgres", "is %q; %s", c.Postgres, want)
	}
	if c.Temporal != "" {
		f.add("postgres", "is set beside temporal_address, whose server keeps its own data: leave one of the two out")
	}
}

// findPorts finds ports that do not exist or are stated twice.
func (c *Cluster) findPorts(f *finder) {
	used := map[int]string{}
	for name, port := range keys[int](&c.Ports) {
		key := "ports." + name
		switch other := used[*port]; {
		case *port < 1 || *port > 65535:
			f.add(key, "is %d, want 1 to 65535", *port)
		case other != "":
			f.add(key, "is %d, the port of %s: want another number", *port, other)
		}
		used[*port] = key
	}
}

// scaledRoles returns the names of the roles that a measured load can scale.
func scaledRoles() (names []string) {
	for _, r := range role.Jobs() {
		if r.Job.Load != "" {
			names = append(names, r.Name)
		}
	}
	return names
}

func (c *Cluster) findPlacement(f *finder) {
	p := c.Placement
	if !p.On() {
		if p.Token || len(p.Scale) > 0 {
			f.add("placement.nomad", "is empty, and token or scale is set: want the URL of the agent on each node, such as http://127.0.0.1:4646")
		}
		return
	}
	if u, err := url.Parse(p.Nomad); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil {
		f.add("placement.nomad", "is %q, want http://host:port or https://host:port of the agent as each node reaches it", p.Nomad)
	}
	if p.ScaleDownAfter <= 0 {
		f.add("placement.scale_down_after", "is %v, want more than 0s, such as 5m", p.ScaleDownAfter)
	}
	seen := map[string]bool{}
	for i, name := range p.Scale {
		key := fmt.Sprintf("placement.scale[%d]", i)
		switch {
		case !slices.Contains(scaledRoles(), name):
			f.add(key, "is %q, want %s: no load of another role is measured", name, strings.Join(scaledRoles(), " or "))
			continue
		case seen[name]:
			f.add(key, "is %s, which is named twice", name)
		}
		seen[name] = true
		for _, r := range c.Named() {
			if r.Name == name && r.Max <= r.Count {
				f.add(key, "is %s, whose max is not above its count (%d): set roles.%s.max", name, r.Count, name)
			}
		}
	}
}

// deviceKind matches vendor/type and vendor/type/name.
var deviceKind = regexp.MustCompile(`^[\w.-]+/[\w.-]+(/[\w. -]+)?$`)

func (c *Cluster) findGPUs(f *finder) {
	g := c.GPUs
	switch {
	case g.Device == "" && g.Count != 0:
		f.add("gpus.count", "is %d, and gpus.device does not say of what: want a kind such as amd/gpu", g.Count)
	case g.Device == "":
	case !deviceKind.MatchString(g.Device):
		f.add("gpus.device", "is %q, want vendor/type or vendor/type/model, such as amd/gpu", g.Device)
	case g.Count < 1 || g.Count > 64:
		f.add("gpus.count", "is %d for each trainer, want 1 to 64", g.Count)
	case !g.Plugin && strings.Count(g.Device, "/") > 1:
		f.add("gpus.device", "is %q: a node's meta names no model; use vendor/type, or gpus.plugin: true", g.Device)
	}
}

// drivers lists the valid drivers of a role.
var drivers = []Driver{Exec, RawExec, Docker}

func (c *Cluster) findRole(f *finder, r Named) {
	key := func(name string) string { return "roles." + r.Name + "." + name }
	if r.Count < 0 || r.Count > 1000 {
		f.add(key("count"), "is %d, want 0 to 1000", r.Count)
	}
	if r.Max < r.Count || r.Max > 1000 {
		f.add(key("max"), "is %d, want at least count (%d) and at most 1000", r.Max, r.Count)
	}
	if r.Job.Single && r.Max > 1 {
		f.add(key("count"), "is %d: one instance owns its folder; want 0 or 1", r.Max)
	}
	c.findDriver(f, r)
	if r.Cores < 0 || r.CPU < 0 || r.Cores == 0 && r.CPU == 0 {
		f.add(key("cpu"), "is %d with cores %d: want MHz for one of them, or whole cores", r.CPU, r.Cores)
	}
	if r.Memory < leastMemory {
		f.add(key("memory"), "is %v, want at least %v", r.Memory, config.Bytes(leastMemory))
	}
	if r.Priority < 1 || r.Priority > 100 {
		f.add(key("priority"), "is %d, want 1 to 100", r.Priority)
	}
	if r.Drain < 0 || r.Drain > MaxDrain {
		f.add(key("drain"), "is %v, want 0s to %v", r.Drain, MaxDrain)
	}
	for name := range r.Env {
		if strings.Contains(name, "TOKEN") || strings.Contains(name, "SECRET") || strings.Contains(name, "PASSWORD") {
			f.add(key("env"), "%s looks like a secret, and all who may read the job would see it: put it into the Nomad variable of the job", name)
		}
	}
}

// findDriver finds processes that a node cannot start.
func (c *Cluster) findDriver(f *finder, r Named) {
	key := func(name string) string { return "roles." + r.Name + "." + name }
	if !slices.Contains(drivers, r.Driver) {
		f.add(key("driver"), "is %q, want exec, raw_exec or docker", r.Driver)
	}
	if r.Driver == Docker && c.Programs.Image == "" && r.Count > 0 {
		f.add(key("driver"), "is docker, and programs.image names no image")
	}
	if r.User != "" && r.Driver == RawExec {
		f.add(key("user"), "is %q: raw_exec runs as the user of Nomad's agent; use exec", r.User)
	}
	if r.User == "root" && r.Driver == Exec {
		f.add(key("user"), "is root, which clients of Nomad refuse for exec: name an ordinary user")
	}
}

// findMissing finds missing keys that the cluster requires.
func (c *Cluster) findMissing(f *finder) {
	r := c.Roles
	if c.Store == "" && r.ObjectStore.Count == 0 {
		f.add("store", "is empty: name one such as s3://bucket/prefix, or set roles.objectstore.count to 1")
	}
	if c.Store != "" && r.ObjectStore.Count > 0 {
		f.add("roles.objectstore.count", "is %d beside the store %s: one of the two", r.ObjectStore.Count, "of the key store")
	}
	if c.Temporal == "" && r.Temporal.Count == 0 {
		f.add("roles.temporal.count", "is 0: nothing would serve Temporal; want 1, or name a server with temporal_address")
	}
	if c.Temporal != "" && r.Temporal.Count > 0 {
		f.add("roles.temporal.count", "is %d beside temporal_address %s: set it to 0", r.Temporal.Count, c.Temporal)
	}
	for _, r := range c.Named() {
		if r.Job.Required != "" && r.Count == 0 {
			f.add("roles."+r.Name+".count", "is 0: nothing would %s; want at least 1", r.Job.Required)
		}
	}
}

package jobs

import (
	"time"

	"github.com/hashicorp/nomad/api"

	"temper/internal/role"
	"temper/jobs/spec"
)

// process is one task of a role, before it is a job.
type process struct {
	name string // of the role
	// id is the job's id. service is the name under which others find the process.
	id, service string
	settings    spec.Role
	// program is one of the cluster's programs, without its folder; systemProgram replaces it by the path of a program
	// of the node's system.
	program, systemProgram string
	args                   []string
	env                    map[string]string
	// folder is what the process keeps on its node; empty for nothing.
	folder string
	// ports with a value of 0 are chosen by Nomad.
	ports []api.Port
	// serve is the port at which others find the process; empty for none.
	serve string
	// check is how Nomad asks whether the process is well; nil for no check.
	check *api.ServiceCheck
	// secrets maps variables of the environment, and files maps files below the secrets folder, to items of the
	// variable with that path in Nomad.
	secrets, files map[string]string
	variable       string
	// texts are further files below the local folder, which hold no secret.
	texts map[string]string
	// needs are lines of templates with addresses of other roles, by the role.
	needs map[string]string
	// identities are signed by Nomad for the process.
	identities []*api.WorkloadIdentity
	// signal tells the process to end; empty means SIGTERM.
	signal string
	// adjust changes the finished group; nil changes nothing.
	adjust func(*api.TaskGroup)
}

// newProcess returns the process of a role as its row in the table of roles describes it.
func newProcess(b Build, row role.Row, flags ...string) process {
	p := process{
		name: row.Name, id: b.ID(row.Name), service: b.ID(row.Name), variable: b.Variable(row.Name),
		program: row.Program, args: row.Arguments(flags...),
		env: map[string]string{}, secrets: map[string]string{}, files: map[string]string{}, needs: map[string]string{},
	}
	if row.Job == nil {
		return p
	}
	p.settings, p.folder, p.serve = b.Of(row.Name), Folder(b, row.Name), row.Job.Serves
	for _, port := range row.Job.Ports {
		p.ports = append(p.ports, api.Port{Label: port.Label, Value: b.Port(port.Key)})
	}
	p.check = healthCheck(row.Job.CheckPort)
	if row.Job.Check == role.CheckConnect {
		p.check = connectCheck(row.Job.CheckPort)
	}
	return p
}

const (
	// loopback is where everything listens that other machines must not reach.
	loopback = "127.0.0.1"
	// healthSuffix ends the name of the service of a health port.
	healthSuffix = "-health"
)

// healthCheck asks /healthz of a port, and starts the process again when there is no good answer.
func healthCheck(port string) *api.ServiceCheck {
	return &api.ServiceCheck{
		Name: "alive", Type: "http", PortLabel: port, Path: "/healthz", Method: "GET", Interval: 5 * time.Second, Timeout: 3 * time.Second,
		CheckRestart: &api.CheckRestart{Limit: 6, Grace: new(90 * time.Second)},
	}
}

// connectCheck asks whether a port takes connections.
func connectCheck(port string) *api.ServiceCheck {
	return &api.ServiceCheck{Name: "open", Type: "tcp", PortLabel: port, Interval: 2 * time.Second, Timeout: 2 * time.Second}
}

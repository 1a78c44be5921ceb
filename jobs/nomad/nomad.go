// Package nomad owns the connection to a Nomad cluster: its address, its credentials, the
// version of its servers, and one-line errors with the way out. It knows no job.
//
// Invariant: every error of a call names the agent that was asked, and no error holds a token.
package nomad

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/hashicorp/nomad/api"
)

// Errors of calls, by how the caller can react.
var (
	// ErrUnreachable means that no agent answered, or no server behind it.
	ErrUnreachable = errors.New("no answer from Nomad")
	// ErrDenied means that the token is unknown or lacks a right.
	ErrDenied = errors.New("denied by Nomad")
	// ErrChanged means that a job has changed since the caller read it.
	ErrChanged = errors.New("changed by others")
	// ErrBusy means that a change of the job is running.
	ErrBusy = errors.New("not now")
	// ErrNotExist means that the object does not exist.
	ErrNotExist = errors.New("does not exist")
)

// Config is the address and the credentials of Nomad. Empty fields take the variables of
// the nomad command: NOMAD_ADDR, NOMAD_TOKEN, NOMAD_REGION, NOMAD_NAMESPACE, NOMAD_CACERT,
// NOMAD_CLIENT_CERT, NOMAD_CLIENT_KEY, NOMAD_TLS_SERVER_NAME.
type Config struct {
	Address, Token, Region, Namespace string
}

// Client is a client of one cluster.
type Client struct {
	*api.Client
	address string
	token   bool // a token is set
}

// Connect makes a client; it does not contact the agent.
func Connect(cfg Config) (*Client, error) {
	c := api.DefaultConfig()
	for _, set := range []struct {
		to   *string
		from string
	}{{&c.Address, cfg.Address}, {&c.SecretID, cfg.Token}, {&c.Region, cfg.Region}, {&c.Namespace, cfg.Namespace}} {
		if set.from != "" {
			*set.to = set.from
		}
	}
	if u, err := url.Parse(c.Address); err != nil || u.Scheme != "unix" && (u.Host == "" || u.Scheme != "http" && u.Scheme != "https") {
		return nil, fmt.Errorf("the address of Nomad is %q, want http://host:port or https://host:port (NOMAD_ADDR)", c.Address)
	}
	client, err := api.NewClient(c)
	if err != nil {
		return nil, fmt.Errorf("client of Nomad at %s: %w", c.Address, err)
	}
	return &Client{Client: client, address: c.Address, token: c.SecretID != ""}, nil
}

// Query returns the options of a read that ends with ctx.
func Query(ctx context.Context) *api.QueryOptions { return (&api.QueryOptions{}).WithContext(ctx) }

// Write returns the options of a write that ends with ctx.
func Write(ctx context.Context) *api.WriteOptions { return (&api.WriteOptions{}).WithContext(ctx) }

// Deref returns *p, or the zero value when p is nil: most fields of package api are
// pointers.
func Deref[T any](p *T) T {
	var zero T
	if p == nil {
		return zero
	}
	return *p
}

// Address returns the agent's URL.
func (c *Client) Address() string { return c.address }

// Fail turns the error of a call into one line. doing describes the call, such as "register
// job x".
func (c *Client) Fail(doing string, err error) error {
	if err == nil {
		return nil
	}
	var response api.UnexpectedResponseError
	var network net.Error
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%s: %w", doing, err)
	case errors.As(err, &response):
		return c.refusal(doing, response)
	case errors.Is(err, api.ErrVariablePathNotFound):
		return fmt.Errorf("%s: %w", doing, ErrNotExist)
	case strings.Contains(err.Error(), "x509:"), strings.Contains(err.Error(), "tls:"), strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		return fmt.Errorf("%s: %w at %s: %w: see NOMAD_ADDR (http or https), NOMAD_CACERT, NOMAD_CLIENT_CERT and NOMAD_CLIENT_KEY", doing, ErrUnreachable, c.address, cause(err))
	case errors.As(err, &network), strings.Contains(err.Error(), "EOF"):
		return fmt.Errorf("%s: %w at %s (%w): start an agent there, or name another with NOMAD_ADDR", doing, ErrUnreachable, c.address, cause(err))
	default:
		return fmt.Errorf("%s: Nomad at %s: %s", doing, c.address, oneLine(err.Error()))
	}
}

// refusal maps the answer of an agent, which uses one status for most errors.
func (c *Client) refusal(doing string, r api.UnexpectedResponseError) error {
	body := oneLine(r.Body())
	has := func(words string) bool { return strings.Contains(strings.ToLower(body), words) }
	switch {
	case has("acl token not found"):
		return fmt.Errorf("%s: %w at %s: it does not know the token in NOMAD_TOKEN: name one of this cluster", doing, ErrDenied, c.address)
	case has("acl token expired"):
		return fmt.Errorf("%s: %w at %s: the token in NOMAD_TOKEN has expired: ask for a new one", doing, ErrDenied, c.address)
	case has("permission denied"):
		if !c.token {
			return fmt.Errorf("%s: %w at %s: it asks for a token: set NOMAD_TOKEN", doing, ErrDenied, c.address)
		}
		if _, _, err := c.ACLTokens().Self(nil); err != nil { // every token may read itself
			return fmt.Errorf("%s: %w at %s: it does not know the token in NOMAD_TOKEN: name one of this cluster", doing, ErrDenied, c.address)
		}
		return fmt.Errorf("%s: %w at %s: the token in NOMAD_TOKEN lacks the right: deploy/nomad/acl has a policy that has it", doing, ErrDenied, c.address)
	case has("enforcing job modify index"):
		return fmt.Errorf("%s: %w: look with temper cluster plan, then apply again", doing, ErrChanged)
	case has("blocked due to active deployment"):
		return fmt.Errorf("%s: %w: a change of the job is under way: wait until it is well", doing, ErrBusy)
	case has("no cluster leader"), has("no servers"), has("rpc error: failed to get conn"), r.StatusCode() == http.StatusBadGateway:
		return fmt.Errorf("%s: %w: the agent at %s has no server that leads (%s): start the servers, or wait for their election", doing, ErrUnreachable, c.address, body)
	case r.StatusCode() == http.StatusNotFound:
		return fmt.Errorf("%s: %w (%s)", doing, ErrNotExist, body)
	default:
		return fmt.Errorf("%s: Nomad at %s answers %d: %s", doing, c.address, r.StatusCode(), body)
	}
}

// cause returns the innermost error of a failed connection, which is the informative part.
func cause(err error) error {
	for inner := errors.Unwrap(err); inner != nil; inner = errors.Unwrap(err) {
		err = inner
	}
	return err
}

func oneLine(text string) string {
	return strings.Join(strings.Fields(text), " ")
}

// Version returns the lowest version of the servers, which limits the features of jobs.
func (c *Client) Version(ctx context.Context) (Version, error) {
	members, err := c.Agent().MembersOpts((&api.QueryOptions{}).WithContext(ctx))
	if err != nil {
		return Version{}, c.Fail("ask for the servers", err)
	}
	var least Version
	known := 0
	for _, m := range members.Members {
		if m.Status == "failed" || m.Status == "left" { // it is replaced and takes no jobs
			continue
		}
		v, err := ParseVersion(m.Tags["build"])
		if err != nil {
			return Version{}, fmt.Errorf("server %s of Nomad at %s: %w", m.Name, c.address, err)
		}
		if known == 0 || v.Before(least) {
			least = v
		}
		known++
	}
	if known == 0 {
		return least, fmt.Errorf("%w: the agent at %s knows no server", ErrUnreachable, c.address)
	}
	return least, nil
}

// Version is a version of Nomad.
type Version [3]int

// ParseVersion parses "1.6.3" and ignores a suffix after a hyphen or a plus.
func ParseVersion(text string) (Version, error) {
	var v Version
	number, _, _ := strings.Cut(strings.TrimPrefix(text, "v"), "-")
	number, _, _ = strings.Cut(number, "+")
	parts := strings.Split(number, ".")
	if len(parts) != len(v) {
		return v, fmt.Errorf("version %q: want three numbers", text)
	}
	for i, p := range parts {
		n, err := strconv.Atoi(p)
		if err != nil || n < 0 {
			return v, fmt.Errorf("version %q: want three numbers", text)
		}
		v[i] = n
	}
	return v, nil
}

// Before reports whether v is older than other.
func (v Version) Before(other Version) bool {
	for i := range v {
		if v[i] != other[i] {
			return v[i] < other[i]
		}
	}
	return false
}

// String returns the version in Nomad's form.
func (v Version) String() string { return fmt.Sprintf("%d.%d.%d", v[0], v[1], v[2]) }

package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"
	uiapi "github.com/temporalio/ui-server/v2/server/api"
	uiconfig "github.com/temporalio/ui-server/v2/server/config"
	"github.com/temporalio/ui-server/v2/server/csrf"
	"github.com/temporalio/ui-server/v2/server/headers"
	"github.com/temporalio/ui-server/v2/server/route"
	"github.com/temporalio/ui-server/v2/ui"
)

// front is an HTTP server that browsers can reach: the web UI or the HTTP API.
type front struct {
	server *http.Server
	done   chan error
}

// openFront serves the handler behind the guard until close. The ui-server
// module has a server of its own, which answers any Host and gives no way to
// put something before it; so this one is made of that module's routes.
func openFront(o options, port int, handler http.Handler) (*front, error) {
	ln, err := net.Listen("tcp", net.JoinHostPort(o.ip, strconv.Itoa(port)))
	if err != nil {
		return nil, err
	}
	f := &front{
		server: &http.Server{Handler: guard{hosts: o.uiHosts, next: handler}, ReadHeaderTimeout: 30 * time.Second},
		done:   make(chan error, 1),
	}
	go func() { f.done <- f.server.Serve(ln) }()
	return f, nil
}

func (f *front) close() error {
	err := f.server.Close()
	if served := <-f.done; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}

// openFronts serves the web UI and the HTTP API where they are asked for.
func openFronts(o options, inner innerAPI) (fronts []*front, err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, closeFronts(fronts))
		}
	}()
	if o.uiPort != 0 {
		handler, err := webUI(o)
		if err != nil {
			return nil, fmt.Errorf("web UI: %w", err)
		}
		f, err := openFront(o, o.uiPort, handler)
		if err != nil {
			return nil, fmt.Errorf("--ui-port: %w", err)
		}
		fronts = append(fronts, f)
	}
	if o.httpPort != 0 {
		f, err := openFront(o, o.httpPort, inner.proxy(o))
		if err != nil {
			return fronts, fmt.Errorf("--http-port: %w", err)
		}
		fronts = append(fronts, f)
	}
	return fronts, nil
}

func closeFronts(fronts []*front) error {
	errs := make([]error, 0, len(fronts))
	for _, f := range fronts {
		errs = append(errs, f.close())
	}
	return errors.Join(errs...)
}

// webUI is the page with its API, which passes requests on to the frontend.
func webUI(o options) (http.Handler, error) {
	conf := &uiconfig.Config{
		Host: o.ip, Port: o.uiPort, TemporalGRPCAddress: o.frontend(), DefaultNamespace: o.namespace,
		EnableUI: true, HideLogs: true, DisableNewsFetch: true,
		// Plain HTTP on a private address: a secure cookie would break every form of the UI.
		CORS: uiconfig.CORS{CookieInsecure: true},
	}
	provider, err := uiconfig.NewConfigProviderWithRefresh(fixedConfig{conf})
	if err != nil {
		return nil, err
	}
	assets, err := ui.Assets()
	if err != nil {
		return nil, err
	}
	if assets, err = fs.Sub(assets, "local"); err != nil {
		return nil, err
	}
	e := echo.New()
	secureCookie := !conf.CORS.CookieInsecure
	e.Use(middleware.Recover(), middleware.Gzip(), middleware.Secure(),
		csrf.EnsureTokenCookie(secureCookie), middleware.CSRFWithConfig(csrf.MiddlewareConfig(provider, secureCookie)))
	route.SetHealthRoute(e)
	forwarded := []uiapi.Middleware{headers.WithForwardHeaders([]string{"Caller-Type"})}
	if err := route.SetAPIRoutes(e, provider, forwarded); err != nil {
		return nil, err
	}
	if err := route.SetUIRoutes(e, "", assets, provider); err != nil {
		return nil, err
	}
	route.SetRenderRoute(e, "/")
	return e, setRunsRoute(e, o.namespace)
}

// fixedConfig is the configuration of a UI that never changes it.
type fixedConfig struct{ conf *uiconfig.Config }

func (f fixedConfig) GetConfig() (*uiconfig.Config, error) { return f.conf, nil }

// innerAPI is the HTTP API of the frontend as only this process reaches it. The
// frontend opens the port itself and can check no Origin, so it answers under a
// name that nobody can guess and the guarded front passes requests on.
type innerAPI struct {
	port int // 0 = no HTTP API
	host string
}

func newInnerAPI(o options, port int) innerAPI {
	if o.httpPort == 0 {
		return innerAPI{host: rand.Text()}
	}
	return innerAPI{port: port, host: rand.Text()}
}

func (a innerAPI) proxy(o options) http.Handler {
	target := &url.URL{Scheme: "http", Host: o.reach(a.port)}
	return &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		r.Out.Host = a.host
	}}
}

// waitUI returns when the UI answers.
func waitUI(ctx context.Context, o options) error {
	if o.uiPort == 0 {
		return nil
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, o.uiURL()+"/healthz", nil)
	if err != nil {
		return err
	}
	return poll(ctx, func() error {
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return fmt.Errorf("web UI: %w", err)
		}
		return resp.Body.Close()
	})
}

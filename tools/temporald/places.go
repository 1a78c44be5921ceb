package main

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"time"

	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/membership/static"
	"go.temporal.io/server/common/primitives"
	"go.temporal.io/server/temporal"
)

// inside are the services that other services call, and nobody else.
var inside = []primitives.ServiceName{primitives.HistoryService, primitives.MatchingService, primitives.WorkerService}

// places are where the services listen and how they find each other.
type places struct {
	services   map[string]config.Service
	membership config.Membership
	hosts      []temporal.ServerOption
}

// placesOf is one server alone, which knows its own ports, or one of several on a
// database, where each writes its address and they watch each other.
func placesOf(o options, ports []int, inner innerAPI) (places, error) {
	if o.postgres != nil {
		return sharedPlaces(o, ports, inner)
	}
	p := places{
		services:   map[string]config.Service{frontend: {RPC: config.RPC{GRPCPort: o.port, HTTPPort: inner.port, BindOnIP: o.ip}}},
		membership: config.Membership{MaxJoinDuration: 30 * time.Second, BroadcastAddress: "127.0.0.1"},
	}
	hosts := map[primitives.ServiceName]static.Hosts{primitives.FrontendService: static.SingleLocalHost(o.frontend())}
	for i, name := range inside {
		p.services[string(name)] = config.Service{RPC: config.RPC{GRPCPort: ports[i], BindOnLocalHost: true}}
		hosts[name] = static.SingleLocalHost(fmt.Sprintf("127.0.0.1:%d", ports[i]))
	}
	p.hosts = []temporal.ServerOption{temporal.WithStaticHosts(hosts)}
	return p, nil
}

func sharedPlaces(o options, ports []int, inner innerAPI) (places, error) {
	watch, err := lowPorts(o.ip, len(inside)+1)
	if err != nil {
		return places{}, err
	}
	p := places{
		services: map[string]config.Service{frontend: {RPC: config.RPC{
			GRPCPort: o.port, HTTPPort: inner.port, MembershipPort: watch[len(inside)], BindOnIP: o.ip,
		}}},
		membership: config.Membership{MaxJoinDuration: joinPatience, BroadcastAddress: o.ip},
	}
	for i, name := range inside {
		p.services[string(name)] = config.Service{RPC: config.RPC{GRPCPort: ports[i], MembershipPort: watch[i], BindOnIP: o.ip}}
	}
	return p, nil
}

const frontend = string(primitives.FrontendService)

// joinPatience bounds one attempt to find the servers that wrote their address; some
// of them may have died since.
const joinPatience = 10 * time.Second

// Ports of membership are written into a column of 16 bits with a sign, and lie
// below those that kernels give out.
const firstLow, numLow = 20000, 12000

// lowPorts finds n free ports in that range.
func lowPorts(ip string, n int) ([]int, error) {
	var found []int
	for range 100 * n {
		port := firstLow + rand.IntN(numLow) //nolint:forbidigo // a port that is free, not a draw of a run
		ln, err := net.Listen("tcp", net.JoinHostPort(ip, strconv.Itoa(port)))
		if err != nil {
			continue // somebody has it
		}
		defer func() { _ = ln.Close() }() // only probed, nothing was accepted
		if found = append(found, port); len(found) == n {
			return found, nil
		}
	}
	return nil, fmt.Errorf("--ip %s: no %d free ports of %d to %d", ip, n, firstLow, firstLow+numLow-1)
}

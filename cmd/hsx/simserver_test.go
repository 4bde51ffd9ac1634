package main

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"hsx/internal/simserver"
)

// simulate runs a simulated server until the script ends, and puts its URL into a
// variable:
//
//	simulate SPEC steps=3 accept=0.7,0.6,0.5 step=5ms loop
//
// Options are the fields of simserver.Options and of its Faults, in any case. With the
// option tls its certificate is of an authority that nobody trusts, in authority.pem.
func simulate(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 {
		ts.Fatalf("usage: simulate VARIABLE [option=value...]")
	}
	options := slices.DeleteFunc(args[1:], func(a string) bool { return a == "tls" })
	secure := len(options) < len(args)-1
	o, err := simOptions(options)
	ts.Check(err)
	s := simserver.New(o)
	web := httptest.NewUnstartedServer(s)
	if secure {
		web.Config.ErrorLog = log.New(io.Discard, "", 0) // of handshakes that fail
		web.StartTLS()
		certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: web.Certificate().Raw})
		ts.Check(os.WriteFile(ts.MkAbs("authority.pem"), certificate, 0o644))
	} else {
		web.Start()
	}
	ts.Defer(func() {
		s.Close()
		web.CloseClientConnections()
		web.Close()
	})
	ts.Setenv(args[0], web.URL)
}

// freePort puts the number of a port that nobody listens on into a variable:
//
//	port PORT
func freePort(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: port VARIABLE")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	_, port, err := net.SplitHostPort(l.Addr().String())
	ts.Check(err)
	ts.Check(l.Close())
	ts.Setenv(args[0], port)
}

// serve is a program that --relaunch starts:
//
//	simserver ADDRESS [option=value...]
func serve() {
	o, err := simOptions(os.Args[2:])
	if err == nil {
		o.Faults.Die = func() { os.Exit(1) }
		var l net.Listener
		if l, err = net.Listen("tcp", os.Args[1]); err == nil {
			fmt.Println("simulated server with options", os.Args[2:])
			err = http.Serve(l, simserver.New(o))
		}
	}
	fmt.Fprintln(os.Stderr, "simserver:", err)
	os.Exit(1)
}

func simOptions(args []string) (simserver.Options, error) {
	o := simserver.Options{Seed: 1}
	for _, arg := range args {
		name, value, _ := strings.Cut(arg, "=")
		is := func(field string) bool { return strings.EqualFold(field, name) }
		field := reflect.ValueOf(&o).Elem().FieldByNameFunc(is)
		if !field.IsValid() {
			field = reflect.ValueOf(&o.Faults).Elem().FieldByNameFunc(is)
		}
		if !field.IsValid() {
			return o, fmt.Errorf("option %q: a server has none of this name", name)
		}
		var err error
		switch to := field.Addr().Interface().(type) {
		case *string:
			*to = value
		case *bool:
			*to = true
		case *time.Duration:
			*to, err = time.ParseDuration(value)
		case *[]float64:
			err = json.Unmarshal([]byte("["+value+"]"), to)
		default:
			err = json.Unmarshal([]byte(value), to)
		}
		if err != nil {
			return o, fmt.Errorf("option %q: %w", arg, err)
		}
	}
	return o, nil
}

// A proxy for any conductor, in Go without packages: it puts a note before every prompt.
//
//	go run add_note.go "Answer briefly."
//
// The format is described in docs/wire.md.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"log"
	"os"
	"regexp"
	"strconv"
	"strings"
)

type message struct {
	JSONRPC string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   json.RawMessage `json:"error,omitempty"`
}

// envelope is the params of proxy/successor.
type envelope struct {
	Method string          `json:"method"`
	Params json.RawMessage `json:"params,omitempty"`
}

type proxy struct {
	out  *json.Encoder
	note string
	// forwarded has the id that a request had on arrival, by the own id with which it was sent on.
	forwarded map[string]json.RawMessage
	lastID    int
}

func main() {
	p := &proxy{out: json.NewEncoder(os.Stdout), forwarded: map[string]json.RawMessage{}}
	p.out.SetEscapeHTML(false)
	if len(os.Args) > 1 {
		p.note = os.Args[1]
	}
	in := bufio.NewReader(os.Stdin)
	for {
		line, err := in.ReadBytes('\n')
		if err == io.EOF {
			return
		}
		var m message
		if err == nil {
			err = json.Unmarshal(line, &m)
		}
		if err == nil {
			err = p.receive(m)
		}
		if err != nil {
			log.Fatal(err) // to stderr, which the conductor shows
		}
	}
}

func (p *proxy) receive(m message) error {
	switch m.Method {
	case "": // a response
		origin, known := p.forwarded[string(m.ID)]
		if !known {
			return nil
		}
		delete(p.forwarded, string(m.ID))
		m.ID = origin
		return p.out.Encode(m)
	case "$/cancel_request":
		return p.cancel(m)
	case "proxy/initialize":
		return p.toSuccessor(m.ID, envelope{"initialize", m.Params})
	case "proxy/successor": // from the agent
		var e envelope
		if err := json.Unmarshal(m.Params, &e); err != nil {
			return err
		}
		return p.forward(m.ID, e.Method, e.Params)
	default: // from the client
		params, err := p.fromClient(m.Method, m.Params)
		if err != nil {
			return err
		}
		return p.toSuccessor(m.ID, envelope{m.Method, params})
	}
}

// fromClient changes the params of a message on its way to the agent.
func (p *proxy) fromClient(method string, params json.RawMessage) (json.RawMessage, error) {
	if method != "session/prompt" || p.note == "" {
		return params, nil
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(params, &members); err != nil {
		return nil, err
	}
	var blocks []json.RawMessage
	if err := json.Unmarshal(members["prompt"], &blocks); err != nil {
		return nil, err
	}
	if isCommand(blocks) {
		return params, nil
	}
	first, err := json.Marshal(map[string]string{"type": "text", "text": p.note})
	if err != nil {
		return nil, err
	}
	members["prompt"], err = json.Marshal(append([]json.RawMessage{first}, blocks...))
	if err != nil {
		return nil, err
	}
	return json.Marshal(members)
}

var command = regexp.MustCompile(`^\s*/[^\s/*][^\s/]*(\s|$)`)

// isCommand says whether the first text is a slash command, which has to come first; /etc/hosts is a path.
func isCommand(blocks []json.RawMessage) bool {
	for _, each := range blocks {
		var block struct{ Type, Text string }
		if json.Unmarshal(each, &block) == nil && block.Type == "text" && strings.TrimSpace(block.Text) != "" {
			return command.MatchString(block.Text)
		}
	}
	return false
}

// forward sends a message on. The response to a request goes back with the id that it had on arrival.
func (p *proxy) forward(id json.RawMessage, method string, params json.RawMessage) error {
	if id == nil {
		return p.out.Encode(message{JSONRPC: "2.0", Method: method, Params: params})
	}
	p.lastID++
	own := strconv.Itoa(p.lastID)
	p.forwarded[own] = id
	return p.out.Encode(message{JSONRPC: "2.0", ID: json.RawMessage(own), Method: method, Params: params})
}

func (p *proxy) toSuccessor(id json.RawMessage, e envelope) error {
	params, err := json.Marshal(e)
	if err != nil {
		return err
	}
	return p.forward(id, "proxy/successor", params)
}

// cancel cancels the request that was sent on for the one that is cancelled.
func (p *proxy) cancel(m message) error {
	var cancelled struct {
		RequestID json.RawMessage `json:"requestId"`
	}
	if err := json.Unmarshal(m.Params, &cancelled); err != nil {
		return err
	}
	for own, origin := range p.forwarded {
		if bytes.Equal(origin, cancelled.RequestID) {
			m.Params = json.RawMessage(`{"requestId":` + own + `}`)
			return p.out.Encode(m)
		}
	}
	return nil
}

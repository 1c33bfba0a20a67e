package sampler

import (
	"context"
	"slices"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/verify/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/wire/arp"
)

// Reader reads the kernel.
type Reader interface {
	Read(ctx context.Context) (check.Snapshot, error)
	Routes(s check.Snapshot, questions []check.RouteQuestion) []check.RouteAnswer
}

// Prober probes by ARP.
type Prober interface {
	Ask(ctx context.Context, interfaceName string, questions []arp.Question) ([]arp.Answer, error)
}

// Look takes one full snapshot: the kernel, then the route look-ups and ARP probes that follow from it.
func Look(ctx context.Context, reader Reader, prober Prober, expected check.Expected) (check.Snapshot, error) {
	return look(ctx, reader, prober, expected, &wireMemory{})
}

// look takes a snapshot and uses the remembered answers where they are valid.
func look(
	ctx context.Context, reader Reader, prober Prober, expected check.Expected, memory *wireMemory,
) (check.Snapshot, error) {
	s, err := reader.Read(ctx)
	if err != nil {
		return s, err
	}
	link, asks, routes := check.Questions(expected, s)
	s.Routes = reader.Routes(s, routes)
	if answers, known := memory.recall(link, asks, time.Now()); known {
		s.ARP = answers
		return s, nil
	}
	s.ARP = ask(ctx, prober, link, asks)
	*memory = wireMemory{link: link, asked: asks, answers: s.ARP, at: time.Now()}
	return s, ctx.Err()
}

// wireMemory keeps the last ARP answers, and the questions that they answer.
type wireMemory struct {
	link    string
	asked   []check.Question
	answers []check.ARPAnswer
	at      time.Time
}

func (m *wireMemory) recall(link string, asks []check.Question, now time.Time) ([]check.ARPAnswer, bool) {
	if m.answers == nil || link != m.link || now.Sub(m.at) >= wireAge || !slices.Equal(asks, m.asked) {
		return nil, false
	}
	return m.answers, true
}

func ask(ctx context.Context, prober Prober, link string, questions []check.Question) []check.ARPAnswer {
	converted := make([]arp.Question, len(questions))
	for i, q := range questions {
		converted[i] = arp.Question(q)
	}
	heard, err := prober.Ask(ctx, link, converted)
	answers := make([]check.ARPAnswer, len(questions))
	for i, q := range questions {
		answers[i] = check.ARPAnswer{Target: q.Target, Source: q.Source}
		if err != nil {
			answers[i].Error = err.Error()
			continue
		}
		answers[i].MACs = heard[i].MACs
		answers[i].Replied = heard[i].Replied
		answers[i].RTT = heard[i].RTT
		answers[i].Within = heard[i].Within
	}
	return answers
}

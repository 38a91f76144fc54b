; Logistics: trucks carry packages within a city, airplanes between the airports.
(define (domain logistics)
  (:requirements :strips)
  (:predicates
    (obj ?o)
    (truck ?t)
    (airplane ?a)
    (location ?l)
    (airport ?l)
    (city ?c)
    (in-city ?l ?c)
    (at ?x ?l)
    (in ?o ?v))
  (:action load-truck
    :parameters (?o ?t ?l)
    :precondition (and (obj ?o) (truck ?t) (location ?l) (at ?o ?l) (at ?t ?l))
    :effect (and (in ?o ?t) (not (at ?o ?l))))
  (:action load-airplane
    :parameters (?o ?a ?l)
    :precondition (and (obj ?o) (airplane ?a) (location ?l) (at ?o ?l) (at ?a ?l))
    :effect (and (in ?o ?a) (not (at ?o ?l))))
  (:action unload-truck
    :parameters (?o ?t ?l)
    :precondition (and (obj ?o) (truck ?t) (location ?l) (in ?o ?t) (at ?t ?l))
    :effect (and (at ?o ?l) (not (in ?o ?t))))
  (:action unload-airplane
    :parameters (?o ?a ?l)
    :precondition (and (obj ?o) (airplane ?a) (location ?l) (in ?o ?a) (at ?a ?l))
    :effect (and (at ?o ?l) (not (in ?o ?a))))
  (:action drive-truck
    :parameters (?t ?from ?to ?c)
    :precondition (and (truck ?t) (location ?from) (location ?to) (city ?c)
      (at ?t ?from) (in-city ?from ?c) (in-city ?to ?c))
    :effect (and (at ?t ?to) (not (at ?t ?from))))
  (:action fly-airplane
    :parameters (?a ?from ?to)
    :precondition (and (airplane ?a) (airport ?from) (airport ?to) (at ?a ?from))
    :effect (and (at ?a ?to) (not (at ?a ?from)))))

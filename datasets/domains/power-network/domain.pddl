; Power network: crews switch lines off to repair substations, and on again to bring them back under voltage.
(define (domain power-network)
  (:requirements :strips :typing :equality :negative-preconditions :disjunctive-preconditions
    :existential-preconditions :derived-predicates)
  (:types substation - station station line crew)
  (:constants grid - station)
  (:predicates
    (joins ?l - line ?s ?t - station)
    (at ?c - crew ?s - station)
    (closed ?l - line)
    (faulty ?s - substation)
    (tested ?s - substation)
    (ends-at ?l - line ?s - station)
    (live ?s - station))
  (:derived (ends-at ?l - line ?s - station)
    (or (exists (?t - station) (joins ?l ?s ?t))
        (exists (?t - station) (joins ?l ?t ?s))))
  (:derived (live ?s - station)
    (or (= ?s grid)
        (exists (?l - line ?t - station) (and (joins ?l ?s ?t) (closed ?l) (live ?t)))
        (exists (?l - line ?t - station) (and (joins ?l ?t ?s) (closed ?l) (live ?t)))))
  (:action walk
    :parameters (?c - crew ?l - line ?from ?to - station)
    :precondition (and (at ?c ?from) (or (joins ?l ?from ?to) (joins ?l ?to ?from)))
    :effect (and (at ?c ?to) (not (at ?c ?from))))
  (:action open
    :parameters (?c - crew ?l - line ?s - station)
    :precondition (and (at ?c ?s) (ends-at ?l ?s) (closed ?l))
    :effect (not (closed ?l)))
  (:action close
    :parameters (?c - crew ?l - line ?s - station)
    :precondition (and (at ?c ?s) (ends-at ?l ?s) (not (closed ?l)))
    :effect (closed ?l))
  (:action repair
    :parameters (?c - crew ?s - substation)
    :precondition (and (at ?c ?s) (faulty ?s) (not (live ?s)))
    :effect (not (faulty ?s)))
  (:action test
    :parameters (?c - crew ?s - substation)
    :precondition (and (at ?c ?s) (live ?s) (not (faulty ?s)) (not (tested ?s)))
    :effect (tested ?s)))

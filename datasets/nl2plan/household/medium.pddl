(define (problem medium)
  (:domain household)
  (:objects
    cabinet_1 cabinet_2 cabinet_3 cabinet_4 dining_table_1 dish_washer_1 drawer_1 drawer_2 drawer_4 fridge_1 - furnitureAppliance
    bowl_1 bowl_2 lunch_box_1 lunch_box_2 pan_1 pan_2 pizza_box_1 plate_1 plate_2 - smallReceptacle
    apple_1 apple_2 banana_1 cutting_board_1 pizza_1 potato_1 toast_1 - householdObject)
  (:init
    (robot-at cabinet_2) (robot-hand-empty) (openable cabinet_1) (closed cabinet_1) (flat-surface dining_table_1)
    (openable drawer_1) (closed drawer_1) (openable fridge_1) (opened fridge_1) (object-on bowl_1 cabinet_2)
    (object-on bowl_2 drawer_2) (object-on plate_1 dining_table_1) (object-on plate_2 dish_washer_1)
    (object-on pan_1 cabinet_3) (object-on pan_2 cabinet_4) (object-on lunch_box_1 fridge_1)
    (object-on lunch_box_2 fridge_1) (object-on pizza_box_1 drawer_4) (object-on cutting_board_1 drawer_1)
    (object-on apple_1 cabinet_1) (object-on apple_2 fridge_1) (object-in pizza_1 lunch_box_1)
    (object-in toast_1 lunch_box_1) (object-on banana_1 cabinet_2) (object-in potato_1 lunch_box_2)
    (pickupable apple_1) (sliceable apple_1) (object-whole apple_1) (pickupable apple_2) (sliceable apple_2)
    (object-whole apple_2) (pickupable banana_1) (sliceable banana_1) (object-whole banana_1) (pickupable bowl_1)
    (is-small-receptacle bowl_1) (pickupable bowl_2) (is-small-receptacle bowl_2) (pickupable cutting_board_1)
    (cutting-board cutting_board_1) (pickupable lunch_box_1) (is-small-receptacle lunch_box_1)
    (openable-receptacle lunch_box_1) (closed-receptacle lunch_box_1) (pickupable lunch_box_2)
    (is-small-receptacle lunch_box_2) (openable-receptacle lunch_box_2) (closed-receptacle lunch_box_2)
    (pickupable pan_1) (is-small-receptacle pan_1) (pan pan_1) (pickupable pan_2) (is-small-receptacle pan_2)
    (pan pan_2) (pickupable pizza_box_1) (is-small-receptacle pizza_box_1) (openable-receptacle pizza_box_1)
    (closed-receptacle pizza_box_1) (pickupable plate_1) (is-small-receptacle plate_1) (pickupable plate_2)
    (is-small-receptacle plate_2) (pickupable potato_1) (sliceable potato_1) (object-whole potato_1)
    (pickupable toast_1) (sliceable toast_1) (object-whole toast_1))
  (:goal (and
    (object-in potato_1 plate_1)
    (closed fridge_1))))

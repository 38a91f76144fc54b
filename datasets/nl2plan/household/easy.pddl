(define (problem easy)
  (:domain household)
  (:objects
    cabinet_1 cabinet_2 countertop_1 dining_table_1 drawer_1 drawer_2 fridge_1 side_table_1 - furnitureAppliance
    blender_1 cup_1 mug_1 plate_1 - smallReceptacle
    apple_1 book_1 book_2 cutting_board_1 humidifier_1 lamp_1 - householdObject)
  (:init
    (robot-at cabinet_1) (robot-holding mug_1) (openable cabinet_1) (closed cabinet_1) (openable cabinet_2)
    (opened cabinet_2) (flat-surface countertop_1) (flat-surface dining_table_1) (openable drawer_1) (opened drawer_1)
    (openable drawer_2) (opened drawer_2) (openable fridge_1) (opened fridge_1) (flat-surface side_table_1)
    (object-on cup_1 cabinet_2) (object-on plate_1 drawer_2) (object-on cutting_board_1 countertop_1)
    (object-on blender_1 dining_table_1) (object-on lamp_1 side_table_1) (object-on humidifier_1 side_table_1)
    (object-on apple_1 cabinet_2) (object-on book_1 dining_table_1) (object-on book_2 dining_table_1)
    (pickupable apple_1) (sliceable apple_1) (object-whole apple_1) (is-small-receptacle blender_1)
    (blender blender_1) (toggleable blender_1) (pickupable book_1) (pickupable book_2) (pickupable cup_1)
    (is-small-receptacle cup_1) (pickupable cutting_board_1) (cutting-board cutting_board_1) (pickupable humidifier_1)
    (toggleable humidifier_1) (appliance-on humidifier_1) (pickupable lamp_1) (toggleable lamp_1) (pickupable mug_1)
    (is-small-receptacle mug_1) (pickupable plate_1) (is-small-receptacle plate_1))
  (:goal (and
    (appliance-on lamp_1)
    (not (appliance-on humidifier_1)))))

//! The consistency conditions of clause 3.3.2.

/// A query for each of the twelve conditions that counts its violations: zero on a consistent
/// database, at any time between transactions. The standard states the eleventh for the initial
/// population; here it also counts the deliveries since.
pub const CONDITIONS: [&str; 12] = [
    // 1: the warehouse's turnover is that of its districts.
    "SELECT count(*) FROM warehouse JOIN (SELECT d_w_id, sum(d_ytd) AS ytd FROM district GROUP BY d_w_id) AS d ON d_w_id = w_id \
     WHERE w_ytd <> ytd",
    // 2: the next order number follows the newest order and the newest undelivered order.
    "SELECT count(*) FROM district \
     LEFT JOIN (SELECT o_w_id, o_d_id, max(o_id) AS newest FROM orders GROUP BY o_w_id, o_d_id) AS o ON o_w_id = d_w_id AND o_d_id = d_id \
     LEFT JOIN (SELECT no_w_id, no_d_id, max(no_o_id) AS newest_new FROM new_order GROUP BY no_w_id, no_d_id) AS n \
       ON no_w_id = d_w_id AND no_d_id = d_id \
     WHERE newest IS NULL OR d_next_o_id - 1 <> newest OR newest_new <> newest",
    // 3: undelivered orders are numbered without gaps.
    "SELECT count(*) FROM (SELECT max(no_o_id) - min(no_o_id) + 1 AS span, count(*) AS orders FROM new_order \
     GROUP BY no_w_id, no_d_id) AS n WHERE span <> orders",
    // 4: a district has as many lines as its orders count.
    "SELECT count(*) FROM (SELECT o_w_id, o_d_id, sum(o_ol_cnt) AS counted FROM orders GROUP BY o_w_id, o_d_id) AS o \
     LEFT JOIN (SELECT ol_w_id, ol_d_id, count(*) AS there FROM order_line GROUP BY ol_w_id, ol_d_id) AS l \
       ON ol_w_id = o_w_id AND ol_d_id = o_d_id \
     WHERE there IS NULL OR counted <> there",
    // 5: an order has no carrier exactly if it is undelivered.
    "SELECT count(*) FROM orders FULL JOIN new_order ON no_w_id = o_w_id AND no_d_id = o_d_id AND no_o_id = o_id \
     WHERE o_id IS NULL OR (o_carrier_id IS NULL AND no_o_id IS NULL) OR (o_carrier_id IS NOT NULL AND no_o_id IS NOT NULL)",
    // 6: each order has as many lines as it counts, and each line has an order.
    "SELECT count(*) FROM orders FULL JOIN (SELECT ol_w_id, ol_d_id, ol_o_id, count(*) AS there FROM order_line \
     GROUP BY ol_w_id, ol_d_id, ol_o_id) AS l ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id \
     WHERE o_id IS NULL OR there IS NULL OR there <> o_ol_cnt",
    // 7: a line is delivered exactly if its order has a carrier.
    "SELECT count(*) FROM order_line JOIN orders ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id \
     WHERE (ol_delivery_d IS NULL AND o_carrier_id IS NOT NULL) OR (ol_delivery_d IS NOT NULL AND o_carrier_id IS NULL)",
    // 8: the warehouse's turnover is the sum of its payments.
    "SELECT count(*) FROM warehouse LEFT JOIN (SELECT h_w_id, sum(h_amount) AS paid FROM history GROUP BY h_w_id) AS h \
     ON h_w_id = w_id WHERE paid IS NULL OR w_ytd <> paid",
    // 9: a district's turnover is the sum of its payments.
    "SELECT count(*) FROM district LEFT JOIN (SELECT h_w_id, h_d_id, sum(h_amount) AS paid FROM history GROUP BY h_w_id, h_d_id) AS h \
     ON h_w_id = d_w_id AND h_d_id = d_id WHERE paid IS NULL OR d_ytd <> paid",
    // 10: a customer's balance is the amount delivered less the amount paid.
    "SELECT count(*) FROM customer \
     LEFT JOIN (SELECT o_w_id, o_d_id, o_c_id, sum(ol_amount) AS delivered FROM orders \
       JOIN order_line ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id WHERE ol_delivery_d IS NOT NULL \
       GROUP BY o_w_id, o_d_id, o_c_id) AS o ON o_w_id = c_w_id AND o_d_id = c_d_id AND o_c_id = c_id \
     LEFT JOIN (SELECT h_c_w_id, h_c_d_id, h_c_id, sum(h_amount) AS paid FROM history GROUP BY h_c_w_id, h_c_d_id, h_c_id) AS h \
       ON h_c_w_id = c_w_id AND h_c_d_id = c_d_id AND h_c_id = c_id \
     WHERE c_balance <> coalesce(delivered, 0) - coalesce(paid, 0)",
    // 11: orders less undelivered orders are those delivered in the beginning and since.
    "SELECT count(*) FROM (SELECT c_w_id, c_d_id, sum(c_delivery_cnt) AS deliveries FROM customer GROUP BY c_w_id, c_d_id) AS c \
     JOIN (SELECT o_w_id, o_d_id, count(*) AS orders FROM orders GROUP BY o_w_id, o_d_id) AS o ON o_w_id = c_w_id AND o_d_id = c_d_id \
     LEFT JOIN (SELECT no_w_id, no_d_id, count(*) AS undelivered FROM new_order GROUP BY no_w_id, no_d_id) AS n \
       ON no_w_id = c_w_id AND no_d_id = c_d_id \
     WHERE orders - coalesce(undelivered, 0) <> 2100 + deliveries",
    // 12: a customer's balance and payments together are the amount delivered.
    "SELECT count(*) FROM customer \
     LEFT JOIN (SELECT o_w_id, o_d_id, o_c_id, sum(ol_amount) AS delivered FROM orders \
       JOIN order_line ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id WHERE ol_delivery_d IS NOT NULL \
       GROUP BY o_w_id, o_d_id, o_c_id) AS o ON o_w_id = c_w_id AND o_d_id = c_d_id AND o_c_id = c_id \
     WHERE c_balance + c_ytd_payment <> coalesce(delivered, 0)",
];
